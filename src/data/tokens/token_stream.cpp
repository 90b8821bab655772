// Windows are runs of `context` tokens, and targets are the same run one token later; both may
// cross from one file to the next.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <set>
#include <utility>

#include "data/readers.h"
#include "data/sample_sources.h"
#include "data/tokens/token_files.h"
#include "error.h"
#include "io/data_files.h"
#include "io/text.h"

namespace ada::data {
namespace {

constexpr int kBytes = 256;
// Above it tokens are compared with the vocabulary only when they are read.
constexpr std::int64_t kTokensLookedAt = std::int64_t{1} << 29;

// Files laid end to end, and where each begins.
struct Pieces {
  TokenFiles files;
  std::vector<std::int64_t> begins;  // of each file; then the end

  explicit Pieces(TokenFiles all) : files(std::move(all)), begins{0} {
    for (const auto& file : files) begins.push_back(begins.back() + file->count());
  }
  std::int64_t count() const { return begins.back(); }
  // The file that has a token; `token` is below count().
  std::size_t PieceAt(std::int64_t token) const {
    return static_cast<std::size_t>(std::upper_bound(begins.begin(), begins.end(), token) -
                                    begins.begin() - 1);
  }
};

class TokenStream final : public TokenSet {
 public:
  // Tokens begin .. end of the pieces.
  TokenStream(std::shared_ptr<const Pieces> pieces, std::int64_t begin, std::int64_t end,
              int context, int vocabulary)
      : TokenSet(context, vocabulary), pieces_(std::move(pieces)), begin_(begin), end_(end) {}

  // The last token of a window needs the one after it.
  std::int64_t sequences() const override {
    return std::max<std::int64_t>(end_ - begin_ - 1, 0) / context();
  }
  std::int64_t places() const override {
    return std::max<std::int64_t>(end_ - begin_ - context(), 0);
  }
  void Read(std::int64_t index, const SequencePlace& out) const override {
    ReadAt(index * context(), out);
  }
  void ReadAt(std::int64_t place, const SequencePlace& out) const override {
    ADA_CHECK(place >= 0 && place < places());
    Copy(begin_ + place, context(), out.tokens);
    std::copy(out.tokens + 1, out.tokens + context(), out.targets);
    Copy(begin_ + place + context(), 1, out.targets + context() - 1);
  }
  std::string NameOf(std::int64_t index) const override { return NameAt(index * context()); }
  std::string NameAt(std::int64_t place) const override {
    const std::size_t at = pieces_->PieceAt(begin_ + place);
    return pieces_->files[at]->path() + ": the sequence from token " +
           std::to_string(begin_ + place - pieces_->begins[at]) + " on";
  }
  std::shared_ptr<const TokenSet> Part(std::int64_t first, std::int64_t count) const override {
    const std::int64_t begin = begin_ + first * context();
    // A part ends one token after its last window, which that window's last target needs:
    // neighboring parts share this token.
    const std::int64_t end = count == 0 ? begin : begin + count * context() + 1;
    return std::make_shared<TokenStream>(pieces_, begin, std::min(end, end_), context(),
                                         vocabulary());
  }
  std::vector<std::string> files() const override {
    std::vector<std::string> names;
    for (const auto& file : pieces_->files) names.push_back(file->path());
    return names;
  }
  void CheckUnchanged() const override {
    for (const auto& file : pieces_->files) file->CheckUnchanged();
  }

 private:
  void Copy(std::int64_t from, std::int64_t count, std::int32_t* out) const {
    for (std::size_t at = pieces_->PieceAt(from); count > 0; ++at) {
      const TokenFile& file = *pieces_->files[at];
      const std::int64_t first = from - pieces_->begins[at];
      const std::int64_t here = std::min(count, file.count() - first);
      file.Read(first, here, vocabulary(), out);
      from += here, out += here, count -= here;
    }
  }

  std::shared_ptr<const Pieces> pieces_;
  std::int64_t begin_, end_;
};

TokenFiles OpenAll(const std::vector<std::string>& paths, TokenType type) {
  TokenFiles files;
  for (const std::string& path : paths)
    files.push_back(std::make_shared<const TokenFile>(path, type));
  return files;
}

Dataset SplitOf(std::shared_ptr<const TokenSet> tokens) {
  Dataset split;
  split.height = tokens->context(), split.width = split.channels = 1;
  split.classes = tokens->vocabulary();
  split.tokens = std::move(tokens);
  return split;
}

void RequireWindow(const TokenSet& tokens, const std::string& split, std::int64_t count) {
  if (tokens.sequences() > 0) return;
  throw DataError(tokens.files().front() + ": split " + split + " has " + Counted(count, "token") +
                  ", too few for one window of " + std::to_string(tokens.context()) +
                  " and the token after it (data.context)");
}

// The tokens that are left to train on where the last share is held back.
std::int64_t CountToTrain(std::int64_t count, double held_back) {
  // 1 - 0.1 is a little less than 0.9, and a product that should be whole may be so too.
  constexpr double kSlack = 1e-6;
  return static_cast<std::int64_t>(
      std::floor(static_cast<double>(count) * (1 - held_back) + kSlack));
}

Splits SplitsOf(TokenFiles files, TokenFiles held_back, const FileChoices& choices,
                int vocabulary) {
  const auto pieces = std::make_shared<const Pieces>(std::move(files));
  const std::int64_t train = CountToTrain(pieces->count(), choices.validation);
  const auto stream = [&](const std::shared_ptr<const Pieces>& of, std::int64_t begin,
                          std::int64_t end) {
    return std::make_shared<TokenStream>(of, begin, end, choices.context, vocabulary);
  };
  Splits splits;
  splits.train = SplitOf(stream(pieces, 0, train));
  RequireWindow(*splits.train.tokens, "train", train);
  if (!held_back.empty()) {
    const auto own = std::make_shared<const Pieces>(std::move(held_back));
    splits.validation = SplitOf(stream(own, 0, own->count()));
    RequireWindow(*splits.validation.tokens, "validation", own->count());
  } else {
    splits.validation = SplitOf(stream(pieces, train, pieces->count()));
    if (choices.validation > 0)
      RequireWindow(*splits.validation.tokens, "validation", pieces->count() - train);
  }
  splits.test = SplitOf(splits.train.tokens->Part(0, 0));
  return splits;
}

std::int64_t CountOf(const TokenFiles& files) {
  std::int64_t count = 0;
  for (const auto& file : files) count += file->count();
  return count;
}

// The vocabulary that is given, or the largest token and one; files that are not too large are
// looked at in any case, but bytes that may have any value.
int VocabularyOf(const TokenFiles& train, const TokenFiles& held_back, int given) {
  if (given > 0 && CountOf(train) + CountOf(held_back) > kTokensLookedAt) return given;
  std::int64_t largest = 0;
  for (const TokenFiles* files : {&train, &held_back})
    for (const auto& file : *files)
      largest = std::max(largest, file->Largest(given > 0 ? given : kMostTokens));
  return given > 0 ? given : static_cast<int>(largest + 1);
}

// The files of split `validation`: those with `val` in their names, of paths that are folders. A
// file that the user names, by itself or by a pattern, is trained on.
std::set<std::string> HeldBackFiles(const std::vector<std::string>& paths) {
  std::set<std::string> held_back;
  for (const std::string& path : paths) {
    if (!IsDataFolder(path)) continue;
    for (const std::string& file : ListTokenFiles({path}, ".bin").files)
      if (std::filesystem::path(file).filename().string().find("val") != std::string::npos)
        held_back.insert(file);
  }
  return held_back;
}

// What the user should not overlook, for a run and, where faults are collected, for a check.
void AddFault(FaultKind kind, const std::string& file, const std::string& text,
              const FileChoices& choices, Splits* splits) {
  splits->warnings.push_back(text);
  if (choices.faults != nullptr) choices.faults->push_back({kind, false, "train", file, text});
}

void WarnOfFolders(const FileList& list, const FileChoices& choices, Splits* splits) {
  for (const std::string& text : list.not_read)
    AddFault(FaultKind::kNotRead, "", text, choices, splits);
}

// Files whose bytes are no text: a line each, and one for those beyond the first ones.
void WarnOfForeign(const TokenFiles& files, const FileChoices& choices, Splits* splits) {
  constexpr std::size_t kNamed = 10;
  constexpr std::size_t kLookedAt = std::size_t{16} << 20, kLeast = std::size_t{4} << 10;  // bytes
  const std::size_t of_file = std::max(kLookedAt / files.size(), kLeast);
  std::size_t found = 0;
  for (const auto& file : files) {
    const std::string fault = FaultOfText(file->bytes(), of_file);
    if (fault.empty()) continue;
    if (++found <= kNamed)
      AddFault(FaultKind::kEncoding, file->path(), file->path() + ": " + fault, choices, splits);
    else if (choices.faults != nullptr)
      choices.faults->push_back(
          {FaultKind::kEncoding, false, "train", file->path(), file->path() + ": " + fault});
  }
  if (found > kNamed)
    splits->warnings.push_back(std::to_string(found - kNamed) +
                               " more files are no text (ada-train datasets --check names all)");
}

// "train.bin is read as uint16 (data.element)": the first file of each type.
std::string NoteOfTypes(const TokenFiles& train, const TokenFiles& held_back) {
  std::string note;
  std::set<std::string> told;
  for (const TokenFiles* files : {&train, &held_back})
    for (const auto& file : *files)
      if (told.insert(file->type_text()).second)
        AddNote(&note, file->path() + " is read as " + file->type_text() + " (data.element)");
  return note;
}

// SplitsOf; of files that are too few the message says which folders were passed over, or what the
// first one is.
Splits SplitsOfList(const FileList& list, const TokenFiles& files, const TokenFiles& held_back,
                    const FileChoices& choices, int vocabulary) {
  try {
    return SplitsOf(files, held_back, choices, vocabulary);
  } catch (const DataError& error) {
    const std::string kind = ForeignKind(files.front()->bytes());
    if (list.not_read.empty() && kind.empty()) throw;
    throw DataError(error.what() +
                    ("; " + (list.not_read.empty() ? files.front()->path() + " " + kind
                                                   : list.not_read.front())));
  }
}

}  // namespace

Splits OpenText(const std::vector<std::string>& paths, const FileChoices& choices) {
  const FileList list = ListTokenFiles(paths, "");
  TokenFiles files = OpenAll(list.files, TokenType::kByte);
  int vocabulary = kBytes;
  if (choices.vocabulary > 0 && choices.vocabulary != kBytes)
    vocabulary = VocabularyOf(files, {}, choices.vocabulary);
  Splits splits = SplitsOfList(list, files, {}, choices, vocabulary);
  WarnOfFolders(list, choices, &splits);
  WarnOfForeign(files, choices, &splits);
  return splits;
}

Splits OpenTokens(const std::vector<std::string>& paths, const FileChoices& choices) {
  const FileList list = ListTokenFiles(paths, ".bin");
  std::vector<std::string> train = list.files;
  const std::set<std::string> own_files = HeldBackFiles(paths);
  const auto validation =
      std::stable_partition(train.begin(), train.end(),
                            [&](const std::string& path) { return !own_files.contains(path); });
  const std::vector<std::string> held_back(validation, train.end());
  train.erase(validation, train.end());
  if (train.empty())
    throw DataError((paths.size() == 1 ? paths.front() : "data.path") +
                    ": all its files *.bin have \"val\" in their names; expected some to train "
                    "on, such as train.bin");
  if (!held_back.empty() && choices.validation > 0)
    throw ConfigError("data.validation: " + held_back.front() +
                      " is split `validation` already; leave the key out");
  TokenFiles files = OpenAll(train, choices.token_type);
  TokenFiles own = OpenAll(held_back, choices.token_type);
  const int vocabulary = VocabularyOf(files, own, choices.vocabulary);
  Splits splits = SplitsOfList(list, files, own, choices, vocabulary);
  if (choices.token_type == TokenType::kAuto) splits.note = NoteOfTypes(files, own);
  WarnOfFolders(list, choices, &splits);
  for (const TokenFiles* of_split : {&files, &own})
    for (const auto& file : *of_split)
      if (const std::string text = file->warning(); !text.empty())
        AddFault(FaultKind::kEncoding, file->path(), text, choices, &splits);
  return splits;
}

}  // namespace ada::data
