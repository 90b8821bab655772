#include "data/cifar.h"

#include <algorithm>
#include <vector>

#include "data/input_file.h"

namespace ada::data {
namespace {

constexpr std::int64_t kRecordsAtATime = 64;

int LabelBytes(const DatasetFacts& facts) { return facts.coarse_classes > 0 ? 2 : 1; }
std::int64_t RecordBytes(const DatasetFacts& facts) {
  return LabelBytes(facts) + facts.per_image();
}

std::string SizeWords(const DatasetFacts& facts, std::int64_t images) {
  return std::to_string(images * RecordBytes(facts)) + " bytes (" + std::to_string(images) +
         " images of " + std::to_string(RecordBytes(facts)) + " bytes)";
}

void CheckLabel(const InputFile& file, std::int64_t offset, const char* kind, int label,
                int classes) {
  if (label < classes) return;
  file.Fail(static_cast<std::uint64_t>(offset), std::string(kind) + " " + std::to_string(label),
            "0 to " + std::to_string(classes - 1));
}

// Planes to pixels: [c, h, w] to [h, w, c].
void Interleave(const std::uint8_t* planes, int pixels, int channels, std::uint8_t* out) {
  for (int i = 0; i < pixels; ++i) {
    for (int c = 0; c < channels; ++c) out[i * channels + c] = planes[c * pixels + i];
  }
}

// One record at byte `offset` of the file.
void DecodeRecord(const DatasetFacts& facts, const InputFile& file, std::int64_t offset,
                  const std::uint8_t* record, Dataset* into) {
  const int label_bytes = LabelBytes(facts);
  if (label_bytes == 2) {
    CheckLabel(file, offset, "coarse label", record[0], facts.coarse_classes);
  }
  const std::uint8_t label = record[label_bytes - 1];
  CheckLabel(file, offset + label_bytes - 1, "label", label, facts.classes);
  into->labels.push_back(label);
  const std::size_t start = into->pixels.size();
  into->pixels.resize(start + static_cast<std::size_t>(facts.per_image()));
  Interleave(record + label_bytes, facts.height * facts.width, facts.channels,
             into->pixels.data() + start);
}

}  // namespace

void CheckCifarFile(const DatasetFacts& facts, const std::string& path, std::int64_t images,
                    const std::string& advice) {
  InputFile(path, advice)
      .ExpectSize(static_cast<std::uint64_t>(images * RecordBytes(facts)),
                  SizeWords(facts, images));
}

void ReadCifarFile(const DatasetFacts& facts, const std::string& path, std::int64_t images,
                   const std::string& advice, Dataset* into) {
  const std::string expected = SizeWords(facts, images);
  const std::int64_t record_bytes = RecordBytes(facts);
  InputFile file(path, advice);
  file.ExpectSize(static_cast<std::uint64_t>(images * record_bytes), expected);
  std::vector<std::uint8_t> buffer(static_cast<std::size_t>(kRecordsAtATime * record_bytes));
  for (std::int64_t first = 0; first < images; first += kRecordsAtATime) {
    const std::int64_t count = std::min(kRecordsAtATime, images - first);
    file.Read(std::span(buffer).first(static_cast<std::size_t>(count * record_bytes)), expected);
    for (std::int64_t i = 0; i < count; ++i) {
      DecodeRecord(facts, file, (first + i) * record_bytes, buffer.data() + i * record_bytes, into);
    }
  }
}

}  // namespace ada::data
