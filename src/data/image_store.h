// Images that are not all decoded in memory: files of a folder, tensors of a mapped file.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "data/images/picture.h"

namespace ada::data {

// Says which part of a picture of this size is needed: a box within it.
using ChoosePart = std::function<Box(PictureSize)>;

// Images are numbered in the order of the files, whatever part of them a Dataset keeps
// (Dataset::NumberInFiles). Safe from several threads.
class ImageStore {
 public:
  virtual ~ImageStore() = default;
  virtual std::int64_t images() const = 0;
  // What image `image` is called in a message.
  virtual std::string NameOf(std::int64_t image) const = 0;
  // What results call it; an image of a file: the file's name without folder and ending.
  virtual std::string TitleOf(std::int64_t image) const { return NameOf(image); }
  // The part of an image that `part` asks for, decoded. DataError naming the image. Not for fp32.
  virtual Picture Read(std::int64_t image, const ChoosePart& part) const = 0;
  // How pictures in files are read.
  virtual PictureRules rules() const { return {}; }
  // What the header of an image's file says; it is read once. DataError as Read. Only where images
  // are files of their own.
  virtual PictureNeeds HeaderOf(std::int64_t image) const;
  // All images, one after the other [images, h, w, c], as bytes or as fp32 values (not aligned),
  // where they lie in memory so; else null.
  virtual const std::uint8_t* Bytes() const { return nullptr; }
  virtual const std::byte* Floats() const { return nullptr; }
  virtual bool is_float() const { return false; }
  // Bytes of memory that reading takes for good: 0 where the system can have them back.
  virtual std::uint64_t memory() const { return 0; }
  // DataError where the file behind the memory was cut since it was opened.
  virtual void CheckUnchanged() const {}
};

// A part of an image [size, channels] in memory.
Picture CutOut(const std::uint8_t* image, PictureSize size, int channels, const Box& part);

}  // namespace ada::data
