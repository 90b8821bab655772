// The loader alone: batches of random resized crops of 224 x 224, mirrored in half of the cases and
// normalized, from a folder of pictures.
//   bench_pictures FOLDER WORKERS EPOCHS      (FOLDER/train/CLASS/*, FOLDER/val/CLASS/*)
// Prints the images per second of each epoch, one a line.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "data/catalog.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "error.h"

namespace {

void Measure(const char* folder, int workers, int epochs) {
  const ada::data::Splits splits = ada::data::Read("folder", folder);
  ada::data::LoaderSpec spec;
  spec.batch_size = 64;
  spec.shuffle = spec.horizontal_flip = true;
  spec.mean = splits.mean;
  spec.std = splits.std;
  spec.workers = workers;
  spec.changes.random_resized_crop = ada::data::RandomResizedCrop{{224, 224}, {}};
  ada::data::Dataset train = splits.train;
  train.height = train.width = 224;
  train.channels = 3;
  ada::data::Loader loader(train, spec);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    const auto begin = std::chrono::steady_clock::now();
    std::int64_t images = 0;
    for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) images += loader.Next().rows;
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%.1f\n", static_cast<double>(images) / took.count());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: bench_pictures FOLDER WORKERS EPOCHS\n");
    return 2;
  }
  try {
    Measure(arguments[1], std::atoi(arguments[2]), std::atoi(arguments[3]));
    return 0;
  } catch (const ada::Error& error) {
    std::fprintf(stderr, "bench_pictures: %s\n", error.what());
    return error.exit_code();
  }
}
