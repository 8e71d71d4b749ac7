#!/bin/sh
# Stands in for Slurm's srun inside `hotpot run`: starts the command here, as often as -n says, and
# waits for all. Where a process shall go has been decided already, so other options are passed over.
tasks=${SLURM_NTASKS:-1}
while [ $# -gt 0 ]; do
    case $1 in
    --) shift; break ;;
    -n | --ntasks) tasks=$2; shift 2 ;;
    -n[0-9]*) tasks=${1#-n}; shift ;;
    --ntasks=*) tasks=${1#*=}; shift ;;
    --*=*) shift ;;
    --gres | --gpus | --gpus-per-node | --gpus-per-task | --cpus-per-task | --cpus-per-gpu | --mem | \
    --mem-per-cpu | --mem-per-gpu | --time | --nodes | --ntasks-per-node | --job-name | --output | \
    --error | --input | --partition | --account | --qos | --mpi | --cpu-bind | --gpu-bind | --mem-bind | \
    --distribution | --nodelist | --exclude | --chdir | --export | --het-group | --signal | --jobid)
        shift 2 ;;
    -[NcGtpAqJoeiDwxmd]) shift 2 ;;
    -*) shift ;;
    *) break ;;
    esac
done
[ $# -gt 0 ] || { echo "srun: no command; this is the stand-in of hotpot" >&2; exit 1; }
case $tasks in '' | *[!0-9]*) echo "srun: -n $tasks is not a number" >&2; exit 1 ;; esac
SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=$tasks SLURM_NTASKS=$tasks SLURM_NPROCS=$tasks
export SLURM_STEP_ID SLURM_STEP_NUM_TASKS SLURM_NTASKS SLURM_NPROCS
[ "$tasks" -eq 1 ] && exec "$@"
pids= rank=0
while [ "$rank" -lt "$tasks" ]; do
    SLURM_PROCID=$rank SLURM_LOCALID=$rank "$@" &
    pids="$pids $!"
    rank=$((rank + 1))
done
status=0
for pid in $pids; do
    wait "$pid" || { code=$?; [ "$code" -gt "$status" ] && status=$code; }
done
exit "$status"
