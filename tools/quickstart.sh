#!/usr/bin/env bash
# From a bare Debian to a trained network: installs what is missing, builds, and trains a small
# convolutional network on Fashion-MNIST in fp16 under the adaptive policy. Again: trains again.
# usage: tools/quickstart.sh [ada-train's options, for example --set train.epochs=1]
# The last line of its output is the run's folder.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1-} in
  -h | --help) sed -n '2,5s/^# //p' "$0"; exit 0 ;;
esac

config=configs/fashion_quickstart.yaml
tools/setup.sh
tools/build.sh --no-tests
options=(--config "$config" --overwrite "$@")
folder=$(build/ada-train "${options[@]}" --print-config | sed -n 's/^output: *//p' | tr -d '"')
build/ada-train "${options[@]}"
echo "$folder"
