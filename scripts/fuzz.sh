#!/usr/bin/env bash
# Runs every libFuzzer target for SECONDS_EACH seconds (default 60) on its corpus. Installs clang 14 and its run-time
# library when they are missing.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${SECONDS_EACH:-60}
scripts/clang.sh clang-14 libclang-rt-14-dev
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
passed=0 failed=0
for program in build/fuzz/test/fuzz/fuzz_*; do
  [ -x "$program" ] && [ -f "$program" ] || continue
  name=${program##*/fuzz_}
  work=build/fuzz/work/$name
  mkdir -p "$work"
  # New inputs go to the work folder, so that a run does not change the checked-in corpus.
  if "$program" -max_total_time="$seconds" -rss_limit_mb=1024 -timeout=10 -artifact_prefix="$work/" \
    "$work" "test/fuzz/corpus/$name" >"$work.log" 2>&1; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    tail -30 "$work.log"
    echo "fuzz_$name failed; log in $work.log"
  fi
done
echo "fuzz: $passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
