// One image from a data set to a network's input: decoded, resized, cropped, flipped, colored,
// normalized, erased, as a LoaderSpec says. A pure function of (data set, spec, epoch, image).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/augment.h"
#include "data/batch.h"
#include "data/dataset.h"
#include "data/labels.h"

namespace ada::data {

// The size of a network's input made of an image of size `stored`, which `name` is for messages.
PictureSize SizeAfter(const LoaderSpec& spec, PictureSize stored, const std::string& name);
// Whether it is the same for all images.
bool FixesSize(const LoaderSpec& spec);

// Why images of this set cannot be changed as the spec requests, and the key that requests it;
// empty: they can be. one_size: all are as large as `dataset` says.
struct ChangesProblem {
  std::string key, text;
  bool empty() const { return text.empty(); }
};
ChangesProblem ProblemOfChanges(const Dataset& dataset, const LoaderSpec& spec, bool one_size);

// What a spec makes of a picture: [shape] floats, for evaluation (random changes of the spec are
// not made). DataError naming `name` where the result has another shape.
std::vector<float> NetworkInput(const Picture& picture, const LoaderSpec& spec,
                                const ImageShape& shape, const std::string& name);

// Where an image goes: its normalized values, or its bytes.
struct ImageValues {
  float* values = nullptr;
  std::uint8_t* bytes = nullptr;
};

// Serves images of all kinds by the shortest way: bytes in memory that are only moved go through a
// table, fp32 values are normalized one by one, and all else is decoded or cut out, resized,
// cropped, colored and then normalized. Made by ImageRows for one LoaderSpec; it holds no state of
// its own between images.
class ImageWriter {
 public:
  // Both outlive it. Throws ConfigError where they do not go together.
  ImageWriter(const Dataset& dataset, const LoaderSpec& spec);

  const ImageShape& shape() const { return shape_; }  // of the result
  // Whether images are files that have to be decoded, or are changed beyond being moved.
  bool is_slow() const { return !plain_ && floats_ == nullptr; }

  // Writes image `image` of the data set as it is in `epoch`. Safe from several threads. DataError:
  // it cannot be read, or is not of the size that it must have. `shown`, where not null, becomes
  // what the result shows, of an image that is slow.
  void Write(std::int64_t epoch, std::int64_t image, const ImageValues& out,
             ShownPart* shown = nullptr) const;
  // What image `image` of the data set is called in a message: its file.
  std::string NameOf(std::int64_t image) const;
  // Brings an image on its way from memory.
  void Prefetch(std::int64_t image) const;
  // DataError where a mapped file was cut.
  void CheckUnchanged() const;

 private:
  // These make a changed image, step by step: PartOf draws what is shown, Read decodes that part,
  // WriteBytes changes colors, Put normalizes, Erase comes last.
  Picture Read(std::int64_t image, const ChoosePart& part) const;
  Placement PlaceIn(PictureSize stored, std::int64_t epoch, std::int64_t image) const;
  ShownPart PartOf(PictureSize stored, std::int64_t epoch, std::int64_t image) const;
  void PlaceScaled(std::int64_t epoch, std::int64_t image, ShownPart* part) const;
  void WriteChanged(std::int64_t epoch, std::int64_t image, const ImageValues& out,
                    ShownPart* shown) const;
  void WriteBytes(const Picture& picture, const Placement& place, std::int64_t epoch,
                  std::int64_t image, const ImageValues& out) const;
  void Put(const std::uint8_t* pixels, const ImageShape& of, const Placement& place,
           const ImageValues& out) const;
  void Erase(std::int64_t epoch, std::int64_t image, float* out) const;

  const Dataset& dataset_;
  const LoaderSpec& spec_;
  ImageShape stored_, shape_;  // stored_: where all are of one size
  std::vector<float> table_;
  std::vector<std::uint8_t> same_;       // the table of bytes that stay
  const std::uint8_t* bytes_ = nullptr;  // all images, where they are bytes in memory
  const std::byte* floats_ = nullptr;    // all images of the store, where they are fp32
  bool plain_ = false;                   // bytes_ that are only moved
};

}  // namespace ada::data
