#!/usr/bin/python3
"""Writes a Slurm job script that runs a sweep, one array task a run.

usage: slurm.py --out OUT --file FILE --tool SWEEP_SH --jobs N --threads N --tasks N
                [--program ADA_TRAIN]
Started by tools/sweep.sh --slurm. What to do with the file is told on stderr.
"""
import argparse
import os
import pathlib
import re
import shlex
import sys

import plan as plans

SCRIPT = """#!/usr/bin/env bash
# {count} runs of ada-train, one array task each: sbatch {file}
# Limits of your cluster go in front of the file's name (sbatch --time=4:00:00 --partition=...).
# Before the time is up, and when the job is preempted, the run writes a checkpoint; then the task
# is queued again and goes on from there. Finished runs end at once.
#SBATCH --job-name={job}
#SBATCH --array=0-{last}%{jobs}
{nodes}#SBATCH --ntasks={tasks}
#SBATCH --cpus-per-task={threads}
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output={log}
set -u
cd {folder} || exit 1
{program}runs=(
{names}
)
if [ -z "${{SLURM_ARRAY_TASK_ID-}}" ]; then
  echo "this is a Slurm job script: sbatch $0" >&2
  exit 2
fi

again=false
task=
woken=true
stop() {{ woken=true; [ -z "$task" ] || kill -"$1" "$task" 2>/dev/null; }}
trap 'again=true; stop {early}' USR1  # from --signal: the time is nearly up
trap {end} TERM INT
{tool} --run "${{runs[$SLURM_ARRAY_TASK_ID]}}" --out {out}{of_tasks} \\
  --threads "${{SLURM_CPUS_PER_TASK:-{threads}}}" &
task=$!
while $woken; do  # a signal ends the wait, not the task
  woken=false status=0
  wait "$task" || status=$?
done
if $again && [ "$status" -eq 143 ]; then
  scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_${{SLURM_ARRAY_TASK_ID}}"
fi
exit "$status"
"""


def refusal(options):
    """Why no job file can be written for these paths; None where one can."""
    for path in (os.getcwd(), options.out, options.file):
        if any(ord(c) < 32 or ord(c) == 127 for c in path):
            return f"{path!r} holds a line break or another control character"
    for path in (os.getcwd(), options.out):
        if "\\" in path:
            return f"{path!r} holds a backslash, to which Slurm gives a meaning in a log's name"
    return None


def slurm_word(text):
    """A word after #SBATCH, which sbatch takes apart much as a shell does."""
    if re.fullmatch(r"[\w@%+=:,./-]*", text, flags=re.ASCII):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def script_of(options, names):
    here = os.getcwd()
    quote = shlex.quote
    program = ""
    if options.program:
        program = f"export ADA_TRAIN={quote(os.path.abspath(options.program))}\n"
    logs = os.path.join(here, options.out, "sweep_logs").replace("%", "%%")  # no fields of Slurm's
    log = slurm_word(os.path.join(logs, "slurm-%A_%a.log"))
    return SCRIPT.format(
        count=len(names), file=quote(options.file), last=len(names) - 1, jobs=options.jobs,
        job="ada-" + "".join(c if c.isalnum() or c in "-_." else "-"
                             for c in pathlib.Path(options.out).resolve().name),
        threads=options.threads, log=log, tasks=options.tasks,
        nodes="#SBATCH --nodes=1\n" if options.tasks == 1 else "",
        of_tasks="" if options.tasks == 1 else f" --tasks {options.tasks}",
        # At the end of a job Slurm tells the processes that srun started by itself.
        early="TERM" if options.tasks == 1 else "USR1",
        end="'stop TERM'" if options.tasks == 1 else "woken=true",
        folder=quote(here), program=program, tool=quote(options.tool), out=quote(options.out),
        names="\n".join("  " + quote(name) for name in names))


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--out", "--file", "--tool", "--program"):
        parser.add_argument(name, default="")
    for name in ("--jobs", "--threads", "--tasks"):
        parser.add_argument(name, type=int, default=1)
    options = parser.parse_args()
    problem = refusal(options)
    if problem:
        print(f"sweep.sh: --slurm: {problem}; choose another folder or file", file=sys.stderr)
        return 2
    names = [run["name"] for run in plans.load(options.out)["runs"]]
    try:
        pathlib.Path(options.file).write_bytes(os.fsencode(script_of(options, names)))
        os.chmod(options.file, 0o755)
    except OSError as error:
        print(f"sweep.sh: {options.file} cannot be written: {error.strerror}", file=sys.stderr)
        return 6
    command = options.file if not options.file.startswith("-") else "./" + options.file
    processes = "" if options.tasks == 1 else f"{options.tasks} processes of "
    print(f"sweep.sh: {len(names)} runs, {options.jobs} at a time with {processes}"
          f"{options.threads} cores each; to start them:\n  sbatch --time=4:00:00 {shlex.quote(command)}\n"
          f"and for the tables, at any time:\n  {shlex.quote(options.tool)} --table "
          f"{shlex.quote(options.out)}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
