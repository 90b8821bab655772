// Arrays of tokens are looked through when they are opened, in parallel, so that a number beyond
// the vocabulary is found before training; rows are converted when they are read. From a text each
// epoch draws as many windows as fit in it one after the other, with replacement and from any
// place, as nanoGPT does; rows of an array are seen once each.
#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "data/augment.h"
#include "data/labels.h"
#include "data/readers.h"
#include "data/row_writer.h"
#include "data/sample_sources.h"
#include "data/tensors/arrays.h"
#include "data/tensors/tensor_file.h"
#include "error.h"
#include "io/run_in_parallel.h"
#include "io/text.h"
#include "number/random.h"

namespace ada::data {
namespace {

constexpr std::int64_t kElementsOfTask = 1 << 20;  // that one thread looks at

// A tensor of integers, and the memory of its elements.
class IntegerTensor {
 public:
  explicit IntegerTensor(const TensorInFile& tensor) : tensor_(tensor) {
    elements_ = CheckedElements(tensor_, &unpacked_).data();
  }
  const TensorInFile& tensor() const { return tensor_; }
  std::int64_t numel() const { return tensor_.numel(); }
  const std::byte* AddressOf(std::int64_t i) const {
    return elements_ + static_cast<std::size_t>(i) * BytesOf(tensor_.dtype);
  }
  // Nothing where it is not 0 .. limit - 1.
  std::optional<std::int64_t> At(std::int64_t i, std::int64_t limit) const {
    return IntegerBelow(AddressOf(i), tensor_.dtype, limit);
  }
  bool IsIgnored(std::int64_t i) const {
    return IntegerIs(AddressOf(i), tensor_.dtype, kIgnoredTarget);
  }
  [[noreturn]] void Refuse(std::int64_t i, const std::string& expected) const {
    const std::int64_t width = tensor_.shape[1];
    throw DataError(tensor_.place + ": element " + DimsText({i / width, i % width}) + " is " +
                    IntegerText(AddressOf(i), tensor_.dtype) + "; expected " + expected);
  }

 private:
  const TensorInFile tensor_;
  ByteBlock unpacked_;
  const std::byte* elements_ = nullptr;
};

// What a split is made of; all its elements have been looked at.
struct Arrays {
  std::shared_ptr<const MappedFile> file;
  std::shared_ptr<const IntegerTensor> tokens, targets;  // no targets: the next token
};

class TokenRows final : public TokenSet {
 public:
  TokenRows(Arrays arrays, std::int64_t first, std::int64_t count, int context, int vocabulary)
      : TokenSet(context, vocabulary), arrays_(std::move(arrays)), first_(first), count_(count) {}

  std::int64_t sequences() const override { return count_; }
  void Read(std::int64_t index, const SequencePlace& out) const override {
    const std::int64_t at = (first_ + index) * context();
    for (int i = 0; i < context(); ++i) out.tokens[i] = Token(*arrays_.tokens, at + i);
    for (int i = 0; i < context(); ++i) out.targets[i] = Target(out.tokens, at, i);
  }
  std::string NameOf(std::int64_t index) const override {
    return arrays_.tokens->tensor().place + ": row " + std::to_string(first_ + index);
  }
  std::shared_ptr<const TokenSet> Part(std::int64_t first, std::int64_t count) const override {
    return std::make_shared<TokenRows>(arrays_, first_ + first, count, context(), vocabulary());
  }
  std::vector<std::string> files() const override { return {arrays_.file->path()}; }
  std::string WhyNoTarget() const override {
    if (!arrays_.targets)
      return context() > 1
                 ? ""
                 : arrays_.tokens->tensor().place + ": rows of one token have no next one";
    for (std::int64_t i = first_ * context(); i < (first_ + count_) * context(); ++i)
      if (!arrays_.targets->IsIgnored(i)) return "";
    return arrays_.targets->tensor().place + ": all are -100";
  }
  void CheckUnchanged() const override { arrays_.file->CheckUnchanged(); }

 private:
  // The file may have been written to since its elements were looked at.
  std::int32_t Token(const IntegerTensor& of, std::int64_t i) const {
    const std::optional<std::int64_t> value = of.At(i, vocabulary());
    if (!value) of.Refuse(i, "0 to " + std::to_string(vocabulary() - 1) + ", the vocabulary");
    return static_cast<std::int32_t>(*value);
  }
  std::int32_t Target(const std::int32_t* tokens, std::int64_t at, int i) const {
    if (!arrays_.targets) return i + 1 < context() ? tokens[i + 1] : kNoLabel;
    return arrays_.targets->IsIgnored(at + i) ? kNoLabel : Token(*arrays_.targets, at + i);
  }

  Arrays arrays_;
  std::int64_t first_, count_;
};

void CheckTokens(const TensorInFile& tensor) {
  const std::vector<std::int64_t>& s = tensor.shape;
  if (!IsInteger(tensor.dtype))
    throw DataError(tensor.place + ": elements are " + std::string(ToString(tensor.dtype)) +
                    "; expected whole numbers (I32, U16, U8, ...)");
  if (s.size() != 2 || s[0] < 1 || s[1] < 1 || s[1] > kLongestSequence ||
      s[0] > std::numeric_limits<std::uint32_t>::max())
    throw DataError(tensor.place + ": has the shape " + DimsText(s) +
                    "; expected [sequences, tokens], of at most " +
                    std::to_string(kLongestSequence) + " tokens each");
}

Arrays ReadArrays(const TensorFile& file, const std::string& split) {
  Arrays arrays;
  arrays.file = file.file();
  const TensorInFile& tokens =
      file.Require(split + ".tokens",
                   "train.tokens [n, tokens], and with it or not train.targets, test.tokens, "
                   "test.targets");
  CheckTokens(tokens);
  arrays.tokens = std::make_shared<const IntegerTensor>(tokens);
  if (const TensorInFile* targets = file.Find(split + ".targets")) {
    CheckTokens(*targets);
    if (targets->shape != tokens.shape)
      throw DataError(targets->place + ": has the shape " + DimsText(targets->shape) +
                      "; expected " + DimsText(tokens.shape) + ", a target for each of " +
                      tokens.name);
    arrays.targets = std::make_shared<const IntegerTensor>(*targets);
  }
  return arrays;
}

// The largest of elements begin .. end; DataError at the first that is not below `limit`, unless it
// says that there is no target, which `may_be_ignored` allows.
std::int64_t LargestOf(const IntegerTensor& tensor, std::int64_t begin, std::int64_t end,
                       std::int64_t limit, bool may_be_ignored) {
  std::int64_t largest = 0;
  for (std::int64_t i = begin; i < end; ++i) {
    const std::optional<std::int64_t> value = tensor.At(i, limit);
    if (!value && !(may_be_ignored && tensor.IsIgnored(i)))
      tensor.Refuse(i, "0 to " + std::to_string(limit - 1) + ", the vocabulary" +
                           (may_be_ignored ? ", or -100 for none" : ""));
    largest = std::max(largest, value.value_or(0));
  }
  return largest;
}

// The largest number of tokens and targets; DataError where one is not below `limit`.
std::int64_t LargestOf(const Arrays& arrays, std::int64_t limit) {
  std::int64_t largest = 0;
  for (const auto& tensor : {arrays.tokens, arrays.targets}) {
    if (!tensor) continue;
    const std::int64_t count = tensor->numel();
    std::vector<std::int64_t> of_task(
        static_cast<std::size_t>((count + kElementsOfTask - 1) / kElementsOfTask));
    RunRangesInParallel(count, kElementsOfTask, [&](std::int64_t begin, std::int64_t end) {
      of_task[static_cast<std::size_t>(begin / kElementsOfTask)] =
          LargestOf(*tensor, begin, end, limit, tensor == arrays.targets);
    });
    for (const std::int64_t one : of_task) largest = std::max(largest, one);
  }
  return largest;
}

constexpr std::uint64_t kWindowStream = StreamId("window");

// The product of 64 bits by 64, in 128.
__extension__ typedef unsigned __int128 Uint128;

// Uniform in 0 .. places - 1; the bias is below places / 2^64.
std::int64_t DrawWindow(std::uint64_t seed, std::int64_t epoch, std::int64_t sample,
                        std::int64_t places) {
  RandomStream random = StreamFor(seed, kWindowStream, epoch, sample);
  const std::uint64_t high = random.NextU32(), low = random.NextU32();
  const Uint128 product = static_cast<Uint128>(high << 32 | low) * static_cast<Uint128>(places);
  return static_cast<std::int64_t>(product >> 64);
}

class SequenceRows final : public RowWriter {
 public:
  SequenceRows(const Dataset& dataset, const LoaderSpec& spec)
      : tokens_(*dataset.tokens),
        seed_(spec.seed),
        places_(spec.shuffle ? dataset.tokens->places() : 0) {
    ADA_CHECK(!spec.as_bytes && !spec.mixing.any() && !spec.changes.any() && !spec.coder);
  }

  RowSizes sizes() const override {
    return {.tokens = tokens_.context(), .labels = tokens_.context()};
  }
  ImageShape shape() const override { return {tokens_.context(), 1, 1}; }
  bool draws() const override { return places_ > 0; }
  std::string NameOf(std::int64_t epoch, std::int64_t sample) const override {
    return draws() ? tokens_.NameAt(PlaceOf(epoch, sample)) : tokens_.NameOf(sample);
  }
  void CheckUnchanged() const override { tokens_.CheckUnchanged(); }
  void Write(std::int64_t epoch, std::int64_t sample, const RowPlace& out) const override {
    const SequencePlace place{out.tokens, out.labels};
    if (draws())
      tokens_.ReadAt(PlaceOf(epoch, sample), place);
    else
      tokens_.Read(sample, place);
  }
  std::int64_t TermsOf(const std::vector<std::int32_t>& labels) const override {
    return std::count_if(labels.begin(), labels.end(),
                         [](std::int32_t label) { return label != kNoLabel; });
  }

 private:
  std::int64_t PlaceOf(std::int64_t epoch, std::int64_t sample) const {
    return DrawWindow(seed_, epoch, sample, places_);
  }

  const TokenSet& tokens_;
  const std::uint64_t seed_;
  const std::int64_t places_;
};

}  // namespace

Splits OpenTokenTensors(const std::string& path, const FileChoices& choices) {
  const TensorFile file(path);
  const Arrays train = ReadArrays(file, "train");
  std::optional<Arrays> test;
  if (file.Find("test.tokens") != nullptr || file.Find("test.targets") != nullptr)
    test = ReadArrays(file, "test");
  const TensorInFile& tokens = train.tokens->tensor();
  const std::int64_t context = tokens.shape[1];
  if (test && test->tokens->tensor().shape[1] != context)
    throw DataError(test->tokens->tensor().place + ": has the shape " +
                    DimsText(test->tokens->tensor().shape) + "; expected sequences of " +
                    std::to_string(context) + ", as in train.tokens");
  const std::int64_t limit = choices.vocabulary > 0 ? choices.vocabulary : kMostTokens;
  std::int64_t largest = LargestOf(train, limit);
  if (test) largest = std::max(largest, LargestOf(*test, limit));
  const int vocabulary =
      choices.vocabulary > 0 ? choices.vocabulary : static_cast<int>(largest + 1);
  const auto split = [&](const Arrays& arrays, std::int64_t count) {
    Dataset dataset;
    dataset.name = "tensors";
    dataset.height = static_cast<int>(context), dataset.width = dataset.channels = 1;
    dataset.classes = vocabulary;
    dataset.tokens =
        std::make_shared<TokenRows>(arrays, 0, count, static_cast<int>(context), vocabulary);
    return dataset;
  };
  Splits splits;
  splits.train = split(train, tokens.shape[0]);
  splits.test = test ? split(*test, test->tokens->tensor().shape[0]) : split(train, 0);
  return splits;
}

std::unique_ptr<RowWriter> MakeSequenceRows(const Dataset& dataset, const LoaderSpec& spec) {
  return std::make_unique<SequenceRows>(dataset, spec);
}

}  // namespace ada::data
