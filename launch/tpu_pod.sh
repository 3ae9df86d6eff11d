#!/bin/bash
# The same command on every host of a Cloud TPU slice, which know each other. From a machine that stays on:
#
#   TPU=my-slice ZONE=us-east5-a bash launch/tpu_pod.sh --config configs/qwen_math.py --workdir /mnt/runs/math
#
# The slice is there already (`gcloud compute tpus tpu-vm create`), with this repository in ~/grpo_jax and
# `pip install -e ".[tpu]"` done on each host, and --workdir on a file system that all of them share and none caches
# (Filestore, not gcsfuse). Lost processes (74, 75, 134, 137) are started again on all hosts, from the newest checkpoint,
# unless one host ended with another status. Without this script the hosts go on, and nothing starts them again.
set -euo pipefail
: "${TPU:?name of the slice}" "${ZONE:?its zone}"
restarts="${RESTARTS:-20}"
said="$(mktemp)"
trap 'rm -f "$said"' EXIT

# on_all COMMAND: runs it on every host, and shows what they say.
on_all() {
  { gcloud compute tpus tpu-vm ssh "$TPU" --zone="$ZONE" --worker=all --command="$1" 2>&1 >&3 | tee "$said" >&2; } 3>&1
}

# decisive STATUS: that of a host whose failure no restart mends, where there is one, else STATUS. gcloud gives the status
# of the first host that failed, and names those of the others: an error on one host is the loss of a peer on the others.
decisive() {
  local status
  for status in $(sed -n 's/.*Command execution on worker [0-9]* failed with exit status \([0-9]*\).*/\1/p' "$said"); do
    restartable "$status" || { echo "$status"; return; }
  done
  echo "$1"
}

restartable() {
  case "$1" in 74 | 75 | 134 | 137) ;; *) return 1 ;; esac
}

train="cd ~/grpo_jax && exec python -m grpo_jax.train --distributed $(printf '%q ' "$@")"
for ((attempt = 0; ; attempt++)); do
  status=0
  on_all "$train" || status=$?
  status="$(decisive "$status")"
  restartable "$status" && ((attempt < restarts)) || exit "$status"
  echo "launch/tpu_pod.sh: status $status, start $((attempt + 2))" >&2
  sleep "${PAUSE_SECONDS:-5}"
done
