"""Not a training script: runs a command with less of the machine, as a container would. Needs root.

    python limited.py --cpus 0.5 -- gputune diagnose -- python healthy.py
    python limited.py --shm-mib 16 -- gputune diagnose -- python shared_memory.py
"""

import argparse
import os
import pathlib
import sys

PERIOD = 100_000  # microseconds, as container runtimes have it


def limit_processors(cpus):
    """Moves this process into a control group with a quota, of version 1 or 2."""
    quota = int(cpus * PERIOD)
    for root, name, text in (("cpu", "cpu.cfs_quota_us", f"{quota}"), ("", "cpu.max", f"{quota} {PERIOD}")):
        group = pathlib.Path("/sys/fs/cgroup") / root / "gputune-sick"
        try:
            group.mkdir(exist_ok=True)
            (group / name).write_text(text)
            (group / "cgroup.procs").write_text(str(os.getpid()))
            return
        except OSError as error:
            why = error
    sys.exit(f"error: processors cannot be limited here: {why}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpus", type=float, help="processors' time in each second, as `docker run --cpus`")
    parser.add_argument("--shm-mib", type=int, help="size of /dev/shm, as `docker run --shm-size`")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    command = args.command
    if args.shm_mib is not None:
        mount = f"mount -t tmpfs -o size={args.shm_mib}m tmpfs /dev/shm && exec \"$@\""
        command = ["unshare", "--mount", "sh", "-c", mount, "sh", *command]
    if args.cpus is not None:
        limit_processors(args.cpus)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        sys.exit(f"error: {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
