// Sequences of tokens that a language model learns from: windows of a text, or rows of an array.
// Each comes with its targets: of each token the one after it, or what the files say.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ada::data {

// The target of a token that has none, which the loss passes over, in files; as PyTorch has it.
inline constexpr std::int64_t kIgnoredTarget = -100;
// Where a sequence goes; `context` values each.
struct SequencePlace {
  std::int32_t* tokens = nullptr;   // 0 to vocabulary - 1
  std::int32_t* targets = nullptr;  // likewise, or kNoLabel
};

// One split. Safe from several threads. TokenStream (windows of files laid end to end) and
// TokenRows (rows of an array) implement it. Dataset::tokens holds it; parts share the files.
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
  // What the same sequences are called in messages: the file that their first token lies in, and
  // where in it.
  virtual std::string NameOf(std::int64_t index) const = 0;
  virtual std::string NameAt(std::int64_t place) const;
  // Sequences first .. first + count.
  virtual std::shared_ptr<const TokenSet> Part(std::int64_t first, std::int64_t count) const = 0;
  virtual std::vector<std::string> files() const = 0;
  // DataError where a file was cut since it was opened.
  virtual void CheckUnchanged() const = 0;

 private:
  int context_, vocabulary_;
};

// Tokens and targets of sequences spread over the set, some millions at most: what tells one set
// from another.
std::vector<std::int32_t> SampleOf(const TokenSet& tokens);

}  // namespace ada::data
