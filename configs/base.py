"""Every key of a run with its default, its meaning and its unit. Other configurations are this one and their changes.

It is a list to read and to copy from, not a run of its own.
"""

from ml_collections import ConfigDict, config_dict


def get_config() -> ConfigDict:
    """All keys with their defaults."""
    config = ConfigDict()
    config.seed = 0  # decides initial weights, order of problems and sampling noise
    config.steps = 200  # steps of training; each samples a batch and updates on it
    config.recipe = "grpo"  # grpo, ppo (the baseline with a critic)

    config.model = ConfigDict(
        {
            # A folder with config.json and safetensors files, a .gguf file, or smollm2-135m (configs/smollm2_135m.py):
            # the sizes below are then its own.
            "path": config_dict.placeholder(str),
            "num_layers": 2,  # decoder layers
            "d_model": 64,  # width of the residual
            "num_heads": 4,  # query heads
            "num_kv_heads": 4,  # key and value heads; a divisor of num_heads
            "head_dim": 16,  # coordinates of a head; even
            "d_ff": 256,  # width of the gated feed-forward network
            "vocab_size": 0,  # 0: the tokenizer's
            "rope_theta": 10_000.0,  # base of the rotary positions
            "rope_scaling": "none",  # none, linear, llama3
            "rope_scaling_factor": 1.0,  # how far positions are stretched; 1 with none
            "rope_low_freq_factor": 1.0,  # llama3 only
            "rope_high_freq_factor": 4.0,  # llama3 only
            "rope_original_max_positions": 8192,  # llama3 only; tokens
            "norm_epsilon": 1e-5,  # added to the mean square in every norm
            "tie_embeddings": False,  # use the transposed embedding as the output projection
            "qk_norm": False,  # norms on queries and keys
            "qkv_bias": False,  # biases on queries, keys and values
            "init_std": 0.02,  # projections; those that write to the residual are divided by sqrt(2 * num_layers)
            "embedding_init_std": 0.02,  # standard deviation of the initial embedding
            "compute_dtype": "float32",  # float32, bfloat16 (for accelerators; master parameters are float32 always)
            # what the backward pass keeps of a layer: none (everything), dots, full (its input), host (that, there)
            "remat": "none",
            "logprob_chunk_tokens": 1024,  # tokens whose logits exist at once
            "attention": "auto",  # auto (cuDNN's or Pallas' kernel where it fits, else blockwise), blockwise
            "attention_block_tokens": 512,  # blockwise: queries of a row whose attention scores exist at once
            "lora": {
                "rank": 0,  # adapters of this rank are trained in the place of the whole model; 0: the whole model
                "alpha": 32.0,  # adapters are multiplied by alpha / rank
                # regular expression on the published names of matrices: q_proj, k_proj, v_proj, o_proj, gate_proj...
                "targets": "[qkvo]_proj|(gate|up|down)_proj",
                "rank_stabilized": False,  # multiply by alpha / sqrt(rank) instead
                "dropout": 0.0,  # share of an adapter's input that is left out of each update's passes
            },
        }
    )

    config.data = ConfigDict(
        {
            "task": "addition",  # addition, countdown, maximum, file, reasoning_gym, environment
            # Task "file": a .jsonl, .json, .csv or .parquet file, FOLDER[:SPLIT] that the datasets library saved, or
            # hf:OWNER/NAME[/SUBSET]:SPLIT on the Hugging Face hub.
            # Task "environment": a module or FILE.py for the verifiers library, and arguments: NAME[:JSON].
            "path": config_dict.placeholder(str),
            "test_path": config_dict.placeholder(str),  # task "file": all test problems; not given: cut from path
            "problem_column": "problem",  # task "file"; a path such as prompt.0.content reaches into a column
            "answer_column": "answer",  # task "file"; likewise
            "answer_format": "plain",  # plain, gsm8k (what follows the last ####), boxed (in a solution's last box)
            "tests_format": "none",  # none (column tests), humaneval, mbpp: columns that a program's tests are made of
            "gym_tasks": (),  # task "reasoning_gym": its tasks in turn, such as ("chain_sum", "leg_counting")
            "gym_settings": "{}",  # JSON object of settings by task, e.g. {"chain_sum": {"max_terms": 3}}
            "gym_seed": 0,  # decides which problems there are
            "digits": 3,  # tasks "addition" and "maximum": digits of each operand
            "countdown_numbers": 3,  # task "countdown": numbers to combine
            "maximum_examples": 2,  # task "maximum": solved problems in front of each, a line each
            "max_problems": 1_000_000,  # generated tasks: size of the pool that the splits are cut from
            "validation_problems": 256,  # looked at during the run
            "test_problems": 256,  # looked at before and after it, never to choose anything
            "tokenizer": "characters",  # characters, bytes, a tokenizer.json, its folder, a .gguf file, or smollm2-135m
            "prompt_template": "{problem}",  # what the model sees; with a tests_format, {tests} shows the tests
            "chat": False,  # prompt_template is what a user says; the tokenizer's chat template makes the prompt of it
            "system_prompt": "",  # with chat only; "": none
            "chat_variables": "{}",  # with chat only; JSON object for the template, e.g. {"enable_thinking": false}
            "chat_date": "",  # with chat only; the day, as 2025-01-31, for templates that write it into prompts
            "max_prompt_tokens": 64,  # a longer prompt is an error (or skipped, see bad_rows)
            "bad_rows": "error",  # error, skip: what to do with rows that cannot be used
        }
    )

    config.curriculum = ConfigDict(
        {
            "enabled": False,  # leave out problems that are always or never solved: nothing is learned from them
            "decay": 0.7,  # weight of a visit, for each later visit of the same problem
            "min_visits": 2,  # before a problem can be left out
            "readmit_probability": 0.05,  # chance that a problem is visited all the same when its turn comes
            "readmit_after_steps": 1000,  # steps until it is visited for sure, best more than an epoch has; 0: off
            "weighting": "uniform",  # the others: uniform (all), variance (with probability 4p(1-p), p the pass rate)
        }
    )

    config.verifier = ConfigDict(
        {
            # numeric, math, code, lint, proof, countdown, format, function, per_problem, reasoning_gym, environment
            "rewards": ("numeric",),  # the first decides what counts as correct
            "weights": (1.0,),  # one for each
            "gates": (),  # rewards that must hold before any other one is asked
            "function": config_dict.placeholder(str),  # reward "function": FILE.py:NAME or package.module:NAME
            "environment": config_dict.placeholder(str),  # reward "environment": the same as data.path
            "column": "verifier",  # reward "per_problem": the column whose value names each problem's reward
            "pool": "local",  # local, ray
            "workers": 1,  # processes
            "deadline_seconds": 5.0,  # for one completion
            "worker_memory_mebibytes": 2048,  # address space of a worker
            "numeric": {
                "extraction": "answer_block",  # answer_block, whole (the whole text is the number)
            },
            "math": {
                # answer_block, boxed, final (block, else box, else a line "The answer is X"), whole
                "extraction": "answer_block",
                "last_box": False,  # the last of several different boxes is the answer; False: all must be right
                "unclosed_answer": False,  # an <answer> that is never closed counts
                "percent": "either",  # 50% may be: either (flagged), fraction (0.5), number (50), strict (50% alone)
                "missing_unit": True,  # a unit may be missing on one side; flagged
                "convert_units": True,  # 100 cm is 1 m
                "approximation_digits": 6,  # significant digits with which 3.14159 is pi; flagged. 0: never
                "decimal_comma": False,  # 1,5 is 1.5
                "list_order": "any",  # any, same
                "list_as_set": True,  # a list of two or more answers is the set of them
                "tuple_as_list": False,  # (1, 2) is the list 1, 2
                "vector_as_tuple": True,  # a matrix of one row or column is the tuple of its elements
                "interval_as_inequality": True,  # x < 3 is (-oo, 3)
                "name_optional": True,  # x = 5 is 5
                "choice_ignores_case": True,  # choice A is a
                "choice_with_text": True,  # choice B is B: 12
                "base_as_value": False,  # 321_5 is 86
                "ratio_as_fraction": False,  # 3:4 is 3/4
            },
            "code": {
                "extraction": "fenced",  # fenced (the last block of a completion), whole
                "stepped": False,  # the reward is the share of tests passed, instead of 1 for all of them
                "case_seconds": 2.0,  # wall time of one test
                "total_seconds": 4.0,  # of all tests together
                "float_tolerance": 1e-9,  # relative and absolute
                "max_code_characters": 100_000,  # a longer program is refused unread
            },
            "lint": {
                "language": "python",  # python, c
                "extraction": "fenced",  # fenced, whole
                "forbidden_imports": (),  # modules that the program may not import
                "forbidden_calls": (),  # names that it may not call
                "required_function": config_dict.placeholder(str),  # name of a function that it must define
                "required_arguments": (),  # names of its arguments, in order
                "compile_program": True,  # compiled too, without being run
                "seconds": 3.0,  # wall time of one program
                "max_code_characters": 100_000,  # a longer program is refused unread
            },
            "proof": {
                "prover": "coq",  # coq, lean4; a column "prover" goes before it
                "extraction": "fenced",  # fenced, whole
                "max_source_characters": 100_000,  # a longer proof is refused unread
                "compile_seconds": 20.0,  # wall time of compiling statement and proof
                "check_seconds": 10.0,  # wall time of each further check
                "memory_mebibytes": 2048,  # address space of a prover; Mathlib needs 16384
                "forbidden": (),  # words that no proof may hold, besides those of the prover's own list
                "replay": False,  # a second checker goes over the compiled proof
                "read_paths": (),  # absolute paths that a prover may read besides its own library
                "coq_command": ("coqc",),  # program and arguments of the compiler
                "coq_checker": ("coqchk",),  # the same of the second checker
                "coq_axioms": (),  # full names of axioms that a proof may use
                "lean_command": ("lean",),  # program and arguments
                "lean_checker": ("leanchecker",),  # the same of the second checker
                "lean_axioms": ("propext", "Classical.choice", "Quot.sound"),  # axioms that a proof may use
                "lean_imports": ("Init", "Std", "Batteries", "Aesop", "Mathlib"),  # first words of allowed modules
                "lean_paths": (),  # absolute paths of compiled libraries
            },
            "sandbox": {
                "minimum_level": "landlock",  # namespaces, bubblewrap, landlock, limits
                "allow_unsafe": False,  # True goes with minimum_level "limits": programs run as you
                "start_seconds": 20.0,  # wall time in which the canary must have tried every door
                "memory_mebibytes": 512,  # of each process
                "file_mebibytes": 16,  # of each file, and of the whole scratch folder where namespaces work
                "processes": 16,  # at one time
                "output_kibibytes": 1024,  # of each stream
            },
        }
    )

    config.rollout = ConfigDict(
        {
            "prompts_per_step": 32,  # problems of a step, B
            "batch_prompts": 0,  # of them whose completions are sampled at once, which bounds the caches; 0: all
            "completions_per_prompt": 8,  # group size G, at least 2
            "max_new_tokens": 64,  # completions are cut off here
            "temperature": 1.0,  # logits are divided by it, in sampler and trainer alike
            "top_k": 0,  # 0: off
            "top_p": 1.0,  # 1: off
            "decode_chunk_tokens": 16,  # tokens between two looks at which groups have ended
            "stop": (),  # texts that end a completion, such as ("\n",); verifiers see what stands before them
        }
    )

    config.algorithm = ConfigDict(
        {
            # group_normalized, group_centered, leave_one_out, batch_normalized, decoupled_normalized
            "advantage": "group_normalized",
            "advantage_ddof": 0,  # group_normalized only: 0 divides the variance by n, 1 by n - 1
            "variance_epsilon": 1e-6,  # floor of a group's standard deviation
            "aggregation": "sequence_mean",  # sequence_mean, token_mean, constant_length
            "constant_length_tokens": 0,  # constant_length only; 0: rollout.max_new_tokens
            "credit": "uniform",  # uniform, prefix_mean (completions share the advantage of a prefix they share)
            "policy_loss": "clip",  # clip, cispo, sapo
            "ratio": "token",  # token, sequence
            "clip_epsilon": 0.2,  # clip only: how far the ratio may leave 1
            "clip_epsilon_high": config_dict.placeholder(float),  # clip only: another bound upwards
            "dual_clip": config_dict.placeholder(float),  # clip only: bound where the advantage is negative
            "cispo_cap": 5.0,  # cispo only
            "sapo_temperature_positive": 1.0,  # sapo only
            "sapo_temperature_negative": 1.05,  # sapo only
            "kl_beta": 0.04,  # 0: no reference is held
            "kl_estimator": "k3",  # k1, k2, k3, k3_unbiased
            "kl_placement": "loss",  # loss, reward
            "length_penalty": 1e-5,  # reward per token over the budget
            "length_budget_tokens": 8192,  # length of a completion up to which nothing is lost
            "length_schedule_steps": 0,  # steps over which penalty and budget move to the values above; 0: constant
            "length_penalty_initial": 0.0,  # where the schedule of length_penalty begins
            "length_budget_initial_tokens": 8192,  # where that of length_budget_tokens begins
            "overlong_max_tokens": 0,  # soft overlong penalty: -1 from this length on; 0: off
            "overlong_cache_tokens": 1,  # length over which it grows
            "mask_truncated": False,  # cut-off completions take no part at all
            "repetition_weight": 0.0,  # reward lost by a completion that only repeats itself; 0: off
            "repetition_ngram_tokens": 8,  # length of what counts as repeated, for metrics and penalty
            "repetition_threshold": 0.2,  # share of repeated n-grams up to which nothing is lost
            "old_logprobs": "sampler",  # sampler (its own), trainer (computed again before the update)
            "importance": "none",  # none, token, sequence: correct for a sampler that differs from the trainer
            "importance_cap": 2.0,  # upper bound of the weights
            "importance_lowest": 0.0,  # weights below are set to 0
            "importance_highest": config_dict.placeholder(float),  # weights above are set to 0
            "router_bias_update": 0.0,  # experts with a bias of choice: how far each moves towards even load; 0: off
            "router_replay": False,  # experts: train along the routes that were sampled along
            "passes_per_batch": 1,  # optimizer updates on each batch
            "micro_batch_completions": 32,  # completions in one forward and backward pass
            "dynamic_sampling_max_batches": 1,  # batches drawn at most to fill one with active groups; 1: off
            "max_nonfinite_steps": 5,  # refused updates in a row before the run stops
        }
    )

    # Read when recipe is "ppo", in the place of the objective above; algorithm then only says how rewards are shaped,
    # and how batches are gone through.
    config.ppo = ConfigDict(
        {
            "gamma": 1.0,  # discount per token
            "gae_lambda": 1.0,  # weight of what comes after the next value; 1: returns minus values
            "clip_epsilon": 0.2,  # how far the ratio may leave 1
            "value_clip": 0.2,  # how far a value may leave the old one
            "kl_beta": 0.04,  # KL in the reward of each token; 0: no reference is held
            "critic": _optimizer(1e-5, warmup_steps=10, schedule="constant", final_fraction=0.0, weight_decay=0.0),
        }
    )

    config.optimizer = _optimizer(1e-6, warmup_steps=10, schedule="constant", final_fraction=0.0, weight_decay=0.0)

    config.reference = ConfigDict(
        {
            "dtype": "compute",  # compute (model.compute_dtype), int8, float8_e4m3fn: matrices of layers in one byte
            "placement": "device",  # device, host (layers in host memory, streamed in one after the other)
        }
    )

    config.cold_start = ConfigDict(
        {
            "steps": 0,  # supervised steps on worked examples before GRPO; 0: none
            "batch_size": 32,  # worked examples
            "thinking_share": 0.35,  # share of the examples that show their working
            "slip_probability": 0.05,  # chance of a slip in each worked column
            "max_passes": 1,  # task "addition": times that an example may go over its columns; 1: no re-checks
            "recheck_probability": 0.4,  # max_passes > 1: chance that another pass follows a pass
            "recheck_slip_factor": 0.5,  # max_passes > 1: slips of a pass over those of the pass before it
            "checkpoint_every_steps": 500,  # steps of the cold start
            "optimizer": _optimizer(5e-3, warmup_steps=20, schedule="cosine", final_fraction=0.1, weight_decay=0.01),
        }
    )

    config.evaluation = ConfigDict(
        {
            "every_steps": 20,  # steps between two looks at the validation problems
            "samples_per_problem": 1,  # on the validation problems
            "test_samples_per_problem": 4,  # on the test problems
            "logged_samples": 16,  # completions of each evaluation that go into samples.jsonl
        }
    )

    config.checkpoint = ConfigDict(
        {
            "every_steps": 50,  # steps
            "keep": 2,  # newest checkpoints to keep
        }
    )

    # Warnings while running. Each limit is one of what is healthy; docs/report.md lists all symptoms.
    config.health = ConfigDict(
        {
            "enabled": True,  # False: no warnings
            "collapsed_groups": 0.9,  # share of groups without a right answer, or without any spread of rewards
            "truncated_completions": 0.25,  # share of completions cut off at max_new_tokens
            "length_growth": 1.5,  # length over what it was at the same pass rate
            "repetition": 0.4,  # share of n-grams that stood before in the same completion
            "kl": 0.3,  # nats per token from the reference
            "verifier_errors": 0.01,  # share of completions that the judge fails on
        }
    )
    config.trackers = ()  # where metrics go besides metrics.jsonl: tensorboard, wandb, trackio

    config.mesh = ConfigDict(
        {
            "data": -1,  # devices that each hold all parameters; -1: all devices left
            "fsdp": 1,  # devices that share parameters and optimizer state, and the batch
            "tensor": 1,  # devices that share heads, feed-forward width and vocabulary
            "context": 1,  # devices that share the positions of each row and of caches, and parameters
            "expert": 1,  # devices that share the experts of a model that has some, other parameters, and the batch
        }
    )

    # What takes longer than its limit is stuck: the process shows where its threads stand and ends with status 74.
    config.watchdog = ConfigDict(
        {
            "start_seconds": 3600,  # for restoring a checkpoint, or making or reading parameters
            "rollout_seconds": 3600,  # from one finished group of completions, or verdict, to the next
            "update_seconds": 3600,  # for scoring a batch, or one update; the first one compiles
            "save_seconds": 3600,  # for a checkpoint, the summary or the curves
            "barrier_seconds": 1800,  # processes wait for each other, before those missing are named (status 75)
            "connect_seconds": 300,  # for all processes to find each other at the start
            "heartbeat_seconds": 60,  # a process that is silent for so long is lost; wait for the others at the end
        }
    )
    return config


def _optimizer(
    learning_rate: float, *, warmup_steps: int, schedule: str, final_fraction: float, weight_decay: float
) -> ConfigDict:
    return ConfigDict(
        {
            "learning_rate": learning_rate,  # at the end of the warm-up
            "warmup_steps": warmup_steps,  # updates over which the learning rate rises from 0
            "schedule": schedule,  # after the warm-up: constant, linear, cosine
            "final_fraction": final_fraction,  # of the learning rate, at the last step
            "b1": 0.9,  # AdamW: decay of the gradient's mean
            "b2": 0.99,  # AdamW: decay of the mean square
            "epsilon": 1e-8,  # AdamW: added to the root of the mean square
            "weight_decay": weight_decay,  # norms and biases are not decayed
            "max_grad_norm": 1.0,  # gradients are scaled down to this global norm
            "moments_dtype": "float32",  # float32, bfloat16 (4 bytes less per parameter, rounded at random)
            "gradient_dtype": "float32",  # float32, bfloat16 (needs model.compute_dtype "bfloat16")
            "placement": "device",  # device, host (masters and moments in host memory, streamed layer by layer)
        }
    )
