// Where the samples of a data set come from that does not lie decoded in memory: images of files,
// and sequences of tokens.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/images/picture.h"

namespace ada::data {

// Says which part of a picture of this size is needed: a box within it.
using ChoosePart = std::function<Box(PictureSize)>;

// Images that are not all decoded in memory: files of a folder, tensors of a mapped file. They are
// numbered in the order of the files, whatever part of them a Dataset keeps
// (Dataset::NumberInFiles). Safe from several threads.
class ImageStore {
 public:
  virtual ~ImageStore() = default;
  virtual std::int64_t images() const = 0;
  // The name of image `image` in messages.
  virtual std::string NameOf(std::int64_t image) const = 0;
  // What results call it; an image of a file: the file's name without folder and ending.
  virtual std::string TitleOf(std::int64_t image) const { return NameOf(image); }
  // The part of an image that `part` asks for, decoded. DataError naming the image. Not for fp32.
  virtual Picture Read(std::int64_t image, const ChoosePart& part) const = 0;
  // How pictures in files are read.
  virtual PictureRules rules() const { return {}; }
  // The properties in the header of an image's file, which is read once. DataError as Read. Only
  // for images in files of their own.
  virtual PictureNeeds HeaderOf(std::int64_t image) const;
  // All images, one after the other [images, h, w, c], as bytes or as fp32 values (not aligned),
  // where they lie in memory so; else null.
  virtual const std::uint8_t* Bytes() const { return nullptr; }
  virtual const std::byte* Floats() const { return nullptr; }
  virtual bool is_float() const { return false; }
  // Bytes of memory held permanently; 0 if the system can reclaim them.
  virtual std::uint64_t memory() const { return 0; }
  // DataError if the mapped file was truncated since it was opened.
  virtual void CheckUnchanged() const {}
};

// A part of an image [size, channels] in memory.
Picture CutOut(const std::uint8_t* image, PictureSize size, int channels, const Box& part);

// The target of a token that has none, which the loss passes over, in files; as PyTorch has it.
inline constexpr std::int64_t kIgnoredTarget = -100;
// Where a sequence goes; `context` values each.
struct SequencePlace {
  std::int32_t* tokens = nullptr;   // 0 to vocabulary - 1
  std::int32_t* targets = nullptr;  // likewise, or kNoLabel
};

// One split's sequences of tokens for a language model: windows of a text, or rows of an array.
// Each has its targets: for each token the next one, or those in the files. Safe from several
// threads. TokenStream (windows of files laid end to end) and TokenRows (rows of an array)
// implement it. Dataset::tokens holds it; parts share the files.
class TokenSet {
 public:
  TokenSet(int context, int vocabulary) : context_(context), vocabulary_(vocabulary) {}
  virtual ~TokenSet() = default;

  int context() const { return context_; }        // tokens of a sequence
  int vocabulary() const { return vocabulary_; }  // different tokens
  virtual std::int64_t sequences() const = 0;     // that do not overlap
  // Where a sequence may begin when it is drawn at random; 0: sequences are rows, which are
  // shuffled instead.
  virtual std::int64_t places() const { return 0; }
  // Sequence `index` in the order of the files. DataError naming file and place: a token is not
  // below the vocabulary.
  virtual void Read(std::int64_t index, const SequencePlace& out) const = 0;
  // The one that begins at `place`; only where there are places.
  virtual void ReadAt(std::int64_t place, const SequencePlace& out) const;
  // The names of the same sequences in messages: the file that contains their first token, and the
  // place in it.
  virtual std::string NameOf(std::int64_t index) const = 0;
  virtual std::string NameAt(std::int64_t place) const;
  // Sequences first .. first + count.
  virtual std::shared_ptr<const TokenSet> Part(std::int64_t first, std::int64_t count) const = 0;
  virtual std::vector<std::string> files() const = 0;
  // Why no token has a target, so that there is no loss to speak of: "FILE: tensor test.targets:
  // all are -100"; "": one has.
  virtual std::string WhyNoTarget() const { return ""; }
  // DataError where a file was cut since it was opened.
  virtual void CheckUnchanged() const = 0;

 private:
  int context_, vocabulary_;
};

// Tokens and targets of sequences spread over the set, some millions at most: what tells one set
// from another.
std::vector<std::int32_t> SampleOf(const TokenSet& tokens);

}  // namespace ada::data
