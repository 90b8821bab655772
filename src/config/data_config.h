// The section `data` as structs: one field per YAML key, of the same name, with its default
// (config.h).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/catalog.h"
#include "data/settings.h"
#include "error.h"

namespace ada::config {

// The key `data.normalize`: the means subtracted from pixels / 255, and the deviations they are
// divided by. kStandard uses those of the data set's row in the catalog, or measures them.
struct NormalizeConfig {
  enum class Kind { kStandard, kNone, kCustom } kind = Kind::kStandard;
  std::vector<double> mean, std;  // one per channel, kCustom only
};
// Two images of a batch as one, with the labels of both.
struct MixConfig {
  double alpha = 0;  // the share of the first image is drawn from Beta(alpha, alpha); 0: never
  double p = 1;      // share of the batches; where mixup and cutmix both are on: 1/2 each
};
// Random changes of training images that are available for every image data set. Those that need
// pictures of several sizes (resized crops, color jitter, the changes of SSD) are in
// DataConfig::changes.
struct AugmentConfig {
  // The sides get `pad` black pixels before the crop is cut out of the larger image.
  int pad = 0;
  bool random_crop = false;
  bool horizontal_flip = false;
  MixConfig mixup, cutmix;
};
// The key `data.limit`: a smaller data set for a trial run. It counts sequences where data are
// tokens.
struct LimitConfig {
  std::int64_t train = 0, test = 0;  // first N images; 0: all
};
// What becomes of an image whose picture, label image or annotation cannot be used: the run ends
// with an error, or the image is left out, counted and named.
enum class BrokenImages { kFail, kSkip };
// The names of a data set's splits, which are the names of its folders or lists. Only camvid and
// voc read them.
struct SplitsConfig {
  std::string train, test, validation;  // empty: the data set's own
};
// The section `data`: which data set, where its files are, and how samples become batches. Several
// members belong to some data sets only; the table in section_data.cpp refuses their keys
// elsewhere, so the others keep defaults that nobody reads. run/assemble/run_data.cpp makes a
// loader of it.
struct DataConfig {
  std::string dataset = "synthetic";  // one of data::Catalog; a required key
  std::string path;
  std::vector<std::string> more_paths;   // further folders of `path`
  std::vector<std::string> class_names;  // empty: the data set's own
  std::optional<int> ignored_label;      // -1: none; unset: the data set's own
  data::LabelValues label_values;        // none: a label is the number of its class
  data::PictureRules pictures;           // the keys exif and sixteen_bit
  data::ArrayLayout layout = data::ArrayLayout::kAuto;
  SplitsConfig splits;
  // Keys of data sets of tokens.
  std::string tokens = "bytes";                      // text: what its tokens are
  data::TokenType element = data::TokenType::kAuto;  // tokens: of a file's numbers
  int vocabulary = 0;                                // tokens, tensors; 0: as the files have
  int context = 0;                                   // tokens of a window; required
  // A batch is what one weight update sees, over all processes and all parts of train.accumulate.
  int batch_size = 128;
  // Nothing: kEvaluationBatch, of long sequences fewer (run::Completed).
  std::optional<int> evaluate_batch_size;
  static constexpr int kEvaluationBatch = 256;
  int evaluation_batch() const { return evaluate_batch_size.value_or(kEvaluationBatch); }
  bool shuffle = true;
  bool drop_last = true;
  NormalizeConfig normalize;
  AugmentConfig augment;
  data::ImageChanges changes;  // resize and center_crop; the others are keys of `augment`
  // Threads that make batches ahead; 0: the training thread makes them. Unset: the default depends
  // on how costly the data set's images are to decode.
  std::optional<int> workers;
  BrokenImages on_broken = BrokenImages::kFail;
  LimitConfig limit;
  // Training samples that are held back as the split `validation`: the last N of them, or a share
  // of each class that the seed draws. At most one of the two members is not zero.
  std::int64_t validation = 0;
  double validation_share = 0;  // instead of `validation`, which is the same key
  data::SyntheticSpec synthetic;
  Location where;  // of `data:`
};

}  // namespace ada::config
