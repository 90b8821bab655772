// A data set in backend memory, of which batches are made there.
#pragma once
#include <cstdint>

#include "core/tensor.h"

namespace ada::backend {

// Pointers are of host memory, copied when the source is made.
struct ImageSourceSpec {
  const std::uint8_t* pixels = nullptr;  // [images, h, w, c]
  const std::uint8_t* labels = nullptr;
  std::int64_t images = 0;
  Shape image;  // n = 1
  int pad = 0;
  bool random_crop = false, horizontal_flip = false;
  const float* table = nullptr;  // [c][256]: what a byte stands for
  std::uint64_t seed = 0;
};
class ImageSource {
 public:
  virtual ~ImageSource() = default;
  // Numbers of images on the host, as many as there are, copied; null: 0, 1, 2, ...
  virtual void SetOrder(const std::uint32_t* order) = 0;
  // Images first .. first + rows of the order, augmented as in `epoch`, in fp32 [rows, h, w, c],
  // and their labels, both into backend memory. To be called outside Backend::Run.
  virtual void Fill(std::int64_t epoch, std::int64_t first, int rows, float* images,
                    std::int32_t* labels) = 0;
};

}  // namespace ada::backend
