// Records are read 64 at a time and checked label by label, and their planes become interleaved
// pixels. Three channels are interleaved sixteen pixels at a time by vector shuffles, which GCC's
// vector types express for any processor.
#include <algorithm>
#include <cstring>
#include <vector>

#include "data/input_file.h"
#include "data/readers.h"
#include "error.h"

namespace ada::data {
namespace {

constexpr std::int64_t kRecordsAtATime = 64;

int LabelBytes(const DatasetFacts& facts) { return facts.coarse_classes > 0 ? 2 : 1; }
std::int64_t RecordBytes(const DatasetFacts& facts) {
  return LabelBytes(facts) + facts.per_image();
}

std::string FileSizeWords(const DatasetFacts& facts, std::int64_t images) {
  return std::to_string(images * RecordBytes(facts)) + " bytes (" + std::to_string(images) +
         " images of " + std::to_string(RecordBytes(facts)) + " bytes)";
}

// Fails at the byte of the label in the file, `offset`.
void CheckLabel(const InputFile& file, std::int64_t offset, const char* kind, int label,
                int classes) {
  if (label < classes) return;
  file.Fail(static_cast<std::uint64_t>(offset), std::string(kind) + " " + std::to_string(label),
            "0 to " + std::to_string(classes - 1));
}

// Sixteen bytes, also as eight pairs and as two words; the shuffles below are single instructions.
using Bytes = std::uint8_t __attribute__((vector_size(16)));
using Pairs = std::uint16_t __attribute__((vector_size(16)));
using Words = std::uint64_t __attribute__((vector_size(16)));

inline Bytes Load(const std::uint8_t* from) {
  Bytes bytes;
  std::memcpy(&bytes, from, sizeof bytes);
  return bytes;
}

// The lower, the upper halves of two registers in turns.
inline Pairs LowBytes(Bytes a, Bytes b) {
  return reinterpret_cast<Pairs>(
      __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23));
}
inline Pairs HighBytes(Bytes a, Bytes b) {
  return reinterpret_cast<Pairs>(
      __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31));
}
inline Words LowPairs(Pairs a, Pairs b) {
  return reinterpret_cast<Words>(__builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11));
}
inline Words HighPairs(Pairs a, Pairs b) {
  return reinterpret_cast<Words>(__builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15));
}

// Four pixels (r g b 0) to twelve bytes: each word holds two pixels, whose six bytes are compacted
// and stored as eight; the two extra bytes are overwritten by the next store.
inline void StoreFour(Words pixels, std::uint8_t* out) {
  const Words packed = (pixels & 0xffffff) | (pixels >> 8 & 0xffffff000000);
  const std::uint64_t first = packed[0], second = packed[1];
  std::memcpy(out, &first, sizeof first);
  std::memcpy(out + 6, &second, sizeof second);
}

// As many pixels as can be done sixteen at a time with pixels left behind them; how many.
int InterleaveThree(const std::uint8_t* planes, int pixels, std::uint8_t* out) {
  int i = 0;
  for (; i + 16 < pixels; i += 16) {
    const Bytes r = Load(planes + i), g = Load(planes + pixels + i);
    const Bytes b = Load(planes + 2 * pixels + i), zero = {};
    // Bytes r g, b 0 in turns become pairs, and pairs become words of two pixels r g b 0 r g b 0.
    const Pairs rg_low = LowBytes(r, g), rg_high = HighBytes(r, g);
    const Pairs b_low = LowBytes(b, zero), b_high = HighBytes(b, zero);
    StoreFour(LowPairs(rg_low, b_low), out + i * 3);
    StoreFour(HighPairs(rg_low, b_low), out + i * 3 + 12);
    StoreFour(LowPairs(rg_high, b_high), out + i * 3 + 24);
    StoreFour(HighPairs(rg_high, b_high), out + i * 3 + 36);
  }
  return i;
}

// Planes to pixels: [c, h, w] to [h, w, c].
void Interleave(const std::uint8_t* planes, int pixels, int channels, std::uint8_t* out) {
  for (int i = channels == 3 ? InterleaveThree(planes, pixels, out) : 0; i < pixels; ++i) {
    for (int c = 0; c < channels; ++c) out[i * channels + c] = planes[c * pixels + i];
  }
}

// One record at byte `offset` of the file, which becomes image `image`.
void DecodeRecord(const DatasetFacts& facts, const InputFile& file, std::int64_t offset,
                  const std::uint8_t* record, std::int64_t image, Dataset* into) {
  const int label_bytes = LabelBytes(facts);
  if (label_bytes == 2) {
    CheckLabel(file, offset, "coarse label", record[0], facts.coarse_classes);
  }
  const std::uint8_t label = record[label_bytes - 1];
  CheckLabel(file, offset + label_bytes - 1, "label", label, facts.classes);
  into->labels[static_cast<std::size_t>(image)] = label;
  Interleave(record + label_bytes, facts.height * facts.width, facts.channels,
             into->pixels.data() + image * facts.per_image());
}

}  // namespace

void CheckCifarFile(const DatasetFacts& facts, const std::string& path, std::int64_t images,
                    const std::string& advice) {
  InputFile(path, advice)
      .ExpectSize(static_cast<std::uint64_t>(images * RecordBytes(facts)),
                  FileSizeWords(facts, images));
}

void ReadCifarFile(const DatasetFacts& facts, const std::string& path, std::int64_t images,
                   const std::string& advice, std::int64_t first, Dataset* into) {
  // Several threads read their files into one Dataset at the same time: its vectors have their size
  // already, and no one may make them grow.
  ADA_CHECK(first >= 0 && first + images <= into->images());
  ADA_CHECK(static_cast<std::int64_t>(into->pixels.size()) == into->images() * facts.per_image());
  const std::string expected = FileSizeWords(facts, images);
  const std::int64_t record_bytes = RecordBytes(facts);
  InputFile file(path, advice);
  file.ExpectSize(static_cast<std::uint64_t>(images * record_bytes), expected);
  std::vector<std::uint8_t> buffer(static_cast<std::size_t>(kRecordsAtATime * record_bytes));
  for (std::int64_t done = 0; done < images; done += kRecordsAtATime) {
    const std::int64_t count = std::min(kRecordsAtATime, images - done);
    file.Read(std::span(buffer).first(static_cast<std::size_t>(count * record_bytes)), expected);
    for (std::int64_t i = 0; i < count; ++i) {
      DecodeRecord(facts, file, (done + i) * record_bytes, buffer.data() + i * record_bytes,
                   first + done + i, into);
    }
  }
}

namespace {

// CIFAR's files have no header: each has an equal share of the published count.
std::int64_t CheckFiles(const SplitFiles& files) {
  const std::int64_t each = files.images / static_cast<std::int64_t>(files.names.size());
  for (const std::string_view name : files.names) {
    CheckCifarFile(files.facts, files.PathOf(name), each, files.advice);
  }
  return files.images;
}

void AddCifarTasks(const SplitFiles& files, Dataset* into,
                   std::vector<std::function<void()>>* tasks) {
  const std::int64_t images = CheckFiles(files);
  const std::int64_t each = images / static_cast<std::int64_t>(files.names.size());
  into->labels.resize(static_cast<std::size_t>(images));
  into->pixels.resize(static_cast<std::size_t>(images * files.facts.per_image()));
  std::int64_t first = 0;
  for (const std::string_view name : files.names) {
    tasks->push_back([files, path = files.PathOf(name), each, first, into] {
      ReadCifarFile(files.facts, path, each, files.advice, first, into);
    });
    first += each;
  }
}

}  // namespace

extern const FileLayout kCifarFiles;
const FileLayout kCifarFiles = {false, AddCifarTasks, CheckFiles};

}  // namespace ada::data
