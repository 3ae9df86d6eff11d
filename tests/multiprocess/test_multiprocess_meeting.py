"""Two processes that find each other as in a Slurm job, tell each other values, and read a published model."""

from grpo_jax.io.digest import tree_digests
from tests.multiprocess import processes
from tests.unit.training.test_training_published import write_model


def test_two_processes_agree(tmp_path):
    whole = write_model(tmp_path / "model")
    first, second = processes.run("tests.multiprocess.meeting", str(tmp_path / "model"), by_slurm=True)
    assert first["processes"] == [0, 2, 4, True]
    assert second["processes"] == [1, 2, 4, False]
    for name in ("everyone", "joined", "any", "first", "differing", "data", "arrays", "published"):
        assert first[name] == second[name], name
    assert first["everyone"] == [
        {"text": "ö", "number": 0.0, "none": None},
        {"text": "öö", "number": 1 / 3, "none": None},
    ]
    assert first["shares"] == [[], [], [0, 1]]
    assert second["shares"] == [[], [0], [2, 3, 4]]
    assert first["joined"] == [[0, 0], [0, 1], [1, 2], [1, 3], [1, 4]]
    assert first["any"] == [False, True]
    assert first["first"] == "told"
    assert first["arrays"] == [True, True, True]
    # Parameters are equal bit for bit to those that one process reads.
    assert first["published"] == tree_digests(whole)

    assert first["elsewhere"] == ["FailedElsewhere", 1, "process 1: there is no such file"]
    assert second["elsewhere"] == ["FileNotFoundError", None, "there is no such file"]
    assert second["on first"] == ["FailedElsewhere", 1, "process 0: there is no such file"]
    kind, status, words = first["differing"]
    assert (kind, status) == ("ConfigError", 2)
    assert "seed: 0 on process 0, 1 on process 1" in words
    assert "both" not in words
    assert "config.data.digits: 2 on process 0, 3 on process 1" in first["data"][2]
    kind, status, words = first["barrier"]
    assert (kind, status) == ("PeerLost", 75)
    assert "process 0 waited for the others at 'the meeting' for 5 seconds" in words
    assert words.endswith("process 1 did not come")
