#!/usr/bin/env bash
# Runs tests on a GPU under one tool of compute-sanitizer: whole steps of small networks and each op
# by itself, so every kernel (sanitizer_filter_test.py looks). Exit status 77: skipped (no GPU, or no compute-sanitizer).
#
# usage: under_sanitizer.sh memcheck|racecheck|initcheck|synccheck TEST_PROGRAM
set -euo pipefail
tool=$1 program=$2

# Without a GPU the program says so and ends before it lists anything.
status=0
words=$("$program" --list-test-cases 2>&1) || status=$?
if [ "$status" = 77 ]; then
  echo "$words"
  exit 77
fi
if ! command -v compute-sanitizer >/dev/null; then
  echo "[skipped] all: compute-sanitizer is not installed (it comes with the CUDA toolkit)"
  echo "[cases] 0 passed, 0 failed, 1 skipped"
  exit 77
fi
exec compute-sanitizer --tool "$tool" --error-exitcode 1 "$program" --test-suite=gpu --test-case='agreement*op by op*,memory*,rounding points*,moments*,update*,loss*,*pool*,batch norm*,branches*,casts*,dropout*,shortcut*,flatten*,input*,batches from*,product op*,streams*,plain values*,weights of many*,images as bytes*,max_unpool*,max_pool gives*,lrn and*,concat*,the loss of*,multiply*,channel scale*,layer norm*,adaptive average*,relu*,functions*,add*,fp8 codes*,evaluation from*,sequences*,attention*,operands op*'
