#!/usr/bin/env bash
# Every check that needs an NVIDIA GPU, with a prebuilt gputune: gpu/acceptance.sh BINARY [options]. See gpu/README.md.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
    echo "error: $python is no Python of version 3.9 or later; name one with PYTHON=/path/to/python" >&2
    exit 2
fi
PYTHONPATH=$here PYTHONDONTWRITEBYTECODE=1 exec "$python" -m acceptance "$@"
