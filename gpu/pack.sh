#!/usr/bin/env bash
# Packs all that a machine with a GPU needs into one compressed archive: gpu/pack.sh [--built FOLDER] [--limit MIB] [ARCHIVE]. See gpu/README.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# Services that lend a GPU often accept an upload of no more.
limit_mib=64
built=
while [[ ${1:-} == --* ]]; do
    case $1 in
    --built) built=${2:?--built needs the folder with gputune and cuda_step} ;;
    --limit) limit_mib=${2:?--limit needs a number of MiB} ;;
    *) echo "error: unknown option $1" >&2 && exit 2 ;;
    esac
    shift 2
done
archive=${1:-target/gpu-acceptance.tar.xz}
if [ -z "$built" ]; then
    cargo build --release --bin gputune --example cuda_step
    built=${CARGO_TARGET_DIR:-target}/release
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir -p "$folder/bin" "$folder/tests" "$(dirname "$archive")"
example=$built/cuda_step
[ -e "$example" ] || example=$built/examples/cuda_step
cp "$built/gputune" "$example" "$folder/bin"
strip "$folder"/bin/* 2>/dev/null || true
cp -r gpu examples python "$folder"
cp -r tests/python "$folder/tests"
find "$folder" -name __pycache__ -prune -exec rm -rf {} +
# Results of other GPUs are not needed there.
rm -rf "$folder/gpu/results"
tar -C "$folder" -c bin examples gpu python tests | xz -T0 -6 >"$archive"
unpacked=$(du -sm "$folder" | cut -f1)
bytes=$(stat -c %s "$archive")
printf '%s: %d.%d MiB compressed, %d MiB unpacked, limit %d MiB\n' \
    "$archive" $((bytes >> 20)) $(((bytes & 1048575) * 10 >> 20)) "$unpacked" "$limit_mib"
if [ "$bytes" -gt $((limit_mib << 20)) ]; then
    echo "error: the archive is larger than $limit_mib MiB" >&2
    exit 1
fi
