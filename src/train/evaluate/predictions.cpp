#include "train/evaluate/predictions.h"

#include <ostream>

#include "core/error.h"
#include "core/text.h"
#include "telemetry/csv.h"

namespace ada::train {
namespace {

constexpr std::size_t kBufferBytes = 1 << 16;

// part / whole; "" where there is no whole.
std::string Share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? "" : NineDigits(static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace

PredictionsFile::PredictionsFile(const std::string& path)
    : file_(path),
      rows_("split,image,label,prediction,probability,label_probability,loss,rank\n") {}

// Fields that a NaN leaves without meaning are empty: the prediction and its probability, or the
// rank.
void PredictionsFile::Add(const std::string& split, const std::string& image,
                          const ImageResult& r) {
  const bool predicted = r.prediction >= 0;
  rows_ += split + ',' + telemetry::CsvField(image) + ',' + std::to_string(r.label) + ',';
  rows_ += predicted ? std::to_string(r.prediction) + ',' + NineDigits(r.probability) : ",";
  rows_ += ',' + NineDigits(r.label_probability) + ',' + NineDigits(r.loss) + ',';
  rows_ += (r.rank > 0 ? std::to_string(r.rank) : "") + '\n';
  if (rows_.size() < kBufferBytes) return;
  file_.Write(rows_);
  rows_.clear();
}

void PredictionsFile::Commit() {
  file_.Write(rows_);
  rows_.clear();
  file_.Commit();
}

void ClassTable::Add(const ImageResult& r) {
  Counts& own = counts_.at(static_cast<std::size_t>(r.label));
  ++own.images;
  own.top1 += r.rank == 1 ? 1 : 0;
  own.top5 += r.rank >= 1 && r.rank <= 5 ? 1 : 0;
  if (r.prediction >= 0) ++counts_.at(static_cast<std::size_t>(r.prediction)).predicted;
}

void ClassTable::Write(const std::string& split, const std::vector<std::string>& names,
                       std::ostream& out) const {
  for (std::size_t k = 0; k < counts_.size(); ++k) {
    const Counts& c = counts_[k];
    out << split << ',' << k << ',' << (k < names.size() ? telemetry::CsvField(names[k]) : "")
        << ',' << c.images << ',' << Share(c.top1, c.images) << ',' << Share(c.top5, c.images)
        << ',' << Share(c.top1, c.predicted) << '\n';
  }
}

}  // namespace ada::train
