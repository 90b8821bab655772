// Images that are not all decoded in memory: files of a folder, tensors of a mapped file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "data/images/picture.h"

namespace ada::data {

// Safe from several threads.
class ImageStore {
 public:
  virtual ~ImageStore() = default;
  virtual std::int64_t images() const = 0;
  // What image `image` is called in a message.
  virtual std::string NameOf(std::int64_t image) const = 0;
  // The image itself, decoded. DataError naming it. InternalError for what is stored as Floats.
  virtual Picture Read(std::int64_t image) const = 0;
  // All images, one after the other [images, h, w, c], as bytes or as fp32 values (not aligned),
  // where they lie in memory so; else null.
  virtual const std::uint8_t* Bytes() const { return nullptr; }
  virtual const std::byte* Floats() const { return nullptr; }
  // DataError where the file behind the memory was cut since it was opened.
  virtual void CheckUnchanged() const {}
};

}  // namespace ada::data
