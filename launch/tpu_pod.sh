#!/bin/bash
# The same command on every host of a Cloud TPU slice, which know each other. From your own machine:
#
#   TPU=my-slice ZONE=us-east5-a bash launch/tpu_pod.sh --config configs/qwen_math.py --workdir /mnt/runs/math
#
# The slice is there already (`gcloud compute tpus tpu-vm create`), with this repository in ~/grpo_jax and
# `pip install -e ".[tpu]"` done on each host, and --workdir on a file system that all of them share (Filestore or
# gcsfuse). Lost processes (status 74, 75, 134, 137) are started again on all hosts, from the newest checkpoint.
set -euo pipefail
: "${TPU:?name of the slice}" "${ZONE:?its zone}"
restarts="${RESTARTS:-20}"

# on_all COMMAND: runs it on every host; the status is that of a host that failed, if one did.
on_all() {
  gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --worker=all --command="$1"
}

train="cd ~/grpo_jax && exec python -m grpo_jax.train --distributed $(printf '%q ' "$@")"
for ((attempt = 0; ; attempt++)); do
  status=0
  on_all "$train" || status=$?
  case "$status" in
    74 | 75 | 134 | 137) ((attempt < restarts)) || exit "$status" ;;
    *) exit "$status" ;;
  esac
  echo "launch/tpu_pod.sh: status $status, start $((attempt + 2))" >&2
  sleep 5
done
