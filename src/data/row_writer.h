// One row of a batch: an image and its truth, changed together. A pure function of (data set, spec,
// epoch, image).
#pragma once
#include <cstdint>

#include "data/image_writer.h"

namespace ada::data {

// Where a row's truth goes.
struct RowTargets {
  std::int32_t* labels = nullptr;  // as many as labels_of_image()
  float* locations = nullptr;      // as many as locations_of_image()
};

class RowWriter {
 public:
  // Both outlive it. ConfigError where they do not go together.
  RowWriter(const Dataset& dataset, const LoaderSpec& spec);

  const ImageWriter& images() const { return images_; }
  const ImageShape& shape() const { return images_.shape(); }
  std::int64_t labels_of_image() const { return labels_; }
  std::int64_t locations_of_image() const { return locations_; }

  // Writes image `image` of the data set as it is in `epoch`. Safe from several threads. DataError:
  // it or its truth cannot be read, or they do not fit together.
  void Write(std::int64_t epoch, std::int64_t image, const ImageValues& out,
             const RowTargets& targets) const;
  // Of a batch's labels, those that its loss is a mean over.
  std::int64_t TermsOf(const std::vector<std::int32_t>& labels) const;

 private:
  void WriteLabels(std::int64_t image, const ShownPart& part, std::int32_t* labels) const;
  // DataError where the picture that was read is not of the size that they are for.
  const ImageObjects& ObjectsOf(std::int64_t image, PictureSize read) const;
  // Those that SSD's changes make; returns the boxes that are left, in pixels of the input.
  std::vector<vision::LabelledBox> WriteSsd(std::int64_t epoch, std::int64_t image,
                                            float* out) const;

  const Dataset& dataset_;
  const LoaderSpec& spec_;
  ImageWriter images_;
  std::int64_t labels_ = 1, locations_ = 0;
};

}  // namespace ada::data
