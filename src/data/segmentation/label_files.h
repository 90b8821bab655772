// Label images that are PNG files, decoded when they are asked for, and what they are found to be
// before anything is trained on them: whether they fit their pictures, which classes none has, and
// how rare each class is.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/dataset.h"
#include "data/file_fault.h"
#include "data/labels.h"
#include "data/picture_files.h"
#include "data/sample_sources.h"
#include "data/settings.h"

namespace ada::data {

// DataError naming both files if a label image of the set has another size than its picture. Reads
// the beginnings of all files, in parallel; unreadable files are left to be reported when they are
// decoded, and with `skip_broken` pairs of different size too.
void RequireLabelSizes(const Dataset& dataset, bool skip_broken);

// The message of such a pair, for the image with this number in its files; names EXIF where that
// would turn the picture to the size of its labels.
std::string OtherSizeText(const Dataset& dataset, std::int64_t number, PictureSize picture,
                          PictureSize labels);

// The label image of the image with this number in its files, whose picture has that size.
// BrokenLabels where it cannot be read, or has another size.
Picture ReadLabels(const Dataset& dataset, std::int64_t number, PictureSize picture);

// Classes that no label image of a set has.
struct UnseenClasses {
  std::vector<int> classes;
  std::int64_t looked = 0;   // label images, evenly spread; all of a set that has no more
  double ignored_share = 0;  // of their pixels, 0 to 1
};

// Reads label images until every class was seen, at most 1,000. What cannot be read counts nothing.
UnseenClasses FindUnseenClasses(const Dataset& dataset);

// What is done about a class without a pixel.
enum class UnseenClass : std::uint8_t {
  kWeightOne,  // it is left out of the median and weighs 1: no pixel asks for its weight
  kAllNan,     // as recorded from ChainerCV's script: every weight is NaN
};

// Weights of classes that are rare in the label images of a set, by median frequency balancing
// (Eigen and Fergus 2015, section 6.3.2; Badrinarayanan et al. 2017): the frequency of a class is
// its pixels through all pixels, ignored ones included, of the images that have it; its weight the
// median of all frequencies through its own. Counts the label images of the set in their own size,
// in parallel; `unseen_classes`, where not null, gets the labels of classes that no pixel has. An
// image that cannot be used is a DataError; where `left_out` is not null it is left out and put
// there instead.
std::vector<double> MedianFrequencyWeights(const Dataset& dataset,
                                           UnseenClass unseen = UnseenClass::kWeightOne,
                                           std::vector<int>* unseen_classes = nullptr,
                                           std::vector<BrokenImage>* left_out = nullptr);

// From counts: `pixels` of each class, and `of`, all pixels of the images that have it.
std::vector<double> MedianFrequencyWeights(const std::vector<std::int64_t>& pixels,
                                           const std::vector<std::int64_t>& of, UnseenClass unseen);

// --- Label images ---

// The classes, and what labels in files mean.
struct PixelClasses {
  std::vector<std::string> names;
  int ignored = -1;         // the label of pixels without a class; -1: there is none
  LabelValues values = {};  // none: a label is the number of its class
};

// Keeps names, tables from labels in files to classes, and the headers that were read.
class LabelFiles final : public LabelImages {
 public:
  // pictures: those that the labels are of, in the same order; it must outlive this. A label image
  // that fits its picture as it is stored, and not as the picture's rules turn it, is turned too.
  LabelFiles(NameList files, PixelClasses classes, std::shared_ptr<const ImageStore> pictures);

  std::string NameOf(std::int64_t image) const override { return std::string(files_[image]); }
  Picture Read(std::int64_t image) const override;
  PictureSize SizeOf(std::int64_t image) const override;
  int ignored() const override { return classes_.ignored; }
  std::uint64_t DecodingBytesOf(std::int64_t image) const override { return HeaderOf(image).bytes; }

 private:
  PictureNeeds HeaderOf(std::int64_t image) const { return headers_.Of(image, NameOf(image), {}); }
  // DataError where a picture of these traits has no labels.
  void RequireLabels(std::int64_t image, const PictureTraits& traits) const;
  Picture ReadValues(std::int64_t image) const;
  Picture ReadColors(std::int64_t image) const;
  // The orientation that the label image has to take on; 1: it stays.
  int OrientationFor(std::int64_t image, PictureSize labels) const;
  [[noreturn]] void FailAt(std::int64_t image, const Picture& picture, std::size_t pixel,
                           const std::string& label) const;

  NameList files_;
  PictureHeaders headers_;  // as they are stored
  PixelClasses classes_;
  std::shared_ptr<const ImageStore> pictures_;
  std::array<std::uint8_t, 256> class_of_{};  // of a label in a file; kIgnoredPixel also: none
  std::array<bool, 256> is_known_{};
  std::unordered_map<std::uint32_t, std::uint8_t> class_of_color_;
};

}  // namespace ada::data
