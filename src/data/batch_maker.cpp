// Goes from the number of a batch to its rows: which images these are (the order of the epoch and,
// of several processes, the share of this one), what becomes of broken ones, and mixing.
// row_writer.h says how a single row is written. An epoch is shuffled by Fisher and Yates with the
// random numbers of the epoch.
#include "data/batch_maker.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "data/batch.h"
#include "data/image_writer.h"
#include "error.h"
#include "io/data_files.h"
#include "io/run_in_parallel.h"
#include "number/random.h"

namespace ada::data {
namespace {

constexpr std::uint64_t kShuffleStream = StreamId("shuffle");
constexpr std::size_t kOrdersKept = 2;  // batches of this epoch and the next are made side by side

// Decoding takes a while: several threads work on one batch.
constexpr int kRowsOfPart = 8;

// These tell the user what does not fit the data set; errors of the calling code are an
// InternalError by ADA_CHECK.
void CheckNormalize(const Dataset& dataset, const LoaderSpec& spec) {
  const auto channels = static_cast<std::size_t>(dataset.channels);
  if (spec.mean.size() != spec.std.size() || (!spec.mean.empty() && spec.mean.size() != channels)) {
    throw ConfigError("data.normalize: " + std::to_string(spec.mean.size()) + " values in mean, " +
                      std::to_string(spec.std.size()) + " in std; expected " +
                      std::to_string(channels) + " in each, one a channel of " + dataset.name);
  }
  for (const double std : spec.std) {
    if (!(std > 0) || !std::isfinite(std)) {
      throw ConfigError("data.normalize: a std of " + std::to_string(std) +
                        "; expected a number above 0");
    }
  }
}

void CheckSpec(const Dataset& dataset, const LoaderSpec& spec) {
  ADA_CHECK(!spec.as_bytes || ComeAsBytes(dataset, spec));
  ADA_CHECK(spec.batch_size >= 1 && spec.pad >= 0 && spec.workers >= 0 && spec.prefetch >= 0);
  ADA_CHECK(dataset.channels >= 1 &&
            (FixesSize(spec) || (dataset.height >= 1 && dataset.width >= 1)));
  ADA_CHECK(dataset.images() <= std::numeric_limits<std::uint32_t>::max());
  if (dataset.images() == 0) {
    throw ConfigError("data set " + dataset.name +
                      ": no images; expected at least one: see data.limit and data.validation");
  }
  if (spec.drop_last && dataset.images() < spec.batch_size) {
    throw ConfigError("data.drop_last: " + std::to_string(dataset.images()) + " images make no " +
                      "whole batch of " + std::to_string(spec.batch_size) +
                      "; lower data.batch_size or set data.drop_last: false");
  }
  CheckNormalize(dataset, spec);
}

}  // namespace

Order ShuffledOrder(std::uint64_t seed, std::int64_t epoch, std::int64_t images) {
  Order order(static_cast<std::size_t>(images));
  std::iota(order.begin(), order.end(), 0u);
  RandomStream random(seed, kShuffleStream + static_cast<std::uint64_t>(epoch));
  // From the last place down: each place takes one of those that are left, itself included.
  for (std::size_t left = order.size(); left > 1; --left) {
    std::swap(order[left - 1], order[random.Below(static_cast<std::uint32_t>(left))]);
  }
  return order;
}

std::shared_ptr<const Order> OrderCache::Get(std::int64_t epoch) {
  const std::lock_guard lock(mutex_);
  for (const auto& [known_epoch, order] : known_) {
    if (known_epoch == epoch) return order;
  }
  if (known_.size() == kOrdersKept) known_.erase(known_.begin());
  known_.emplace_back(epoch, std::make_shared<const Order>(ShuffledOrder(seed_, epoch, images_)));
  return known_.back().second;
}

BatchMaker::BatchMaker(const Dataset& dataset, const LoaderSpec& spec)
    : dataset_(dataset),
      spec_((CheckSpec(dataset, spec), spec)),
      writer_(MakeRowWriter(dataset_, spec_)),
      sizes_(writer_->sizes()),
      shape_(writer_->shape()),
      images_(dataset.images()),
      orders_(spec.seed, dataset.images()) {
  batches_per_epoch_ = spec.drop_last ? images_ / spec.batch_size
                                      : (images_ + spec.batch_size - 1) / spec.batch_size;
  if (writer_->is_slow()) parts_ = (spec.batch_size + kRowsOfPart - 1) / kRowsOfPart;
}

std::int64_t BatchMaker::FirstOf(std::int64_t sequence) const {
  return sequence % batches_per_epoch_ * spec_.batch_size;
}

std::int64_t BatchMaker::WholeRows(std::int64_t sequence) const {
  return std::min<std::int64_t>(spec_.batch_size, images_ - FirstOf(sequence));
}

BatchMaker::Rows BatchMaker::RowsOf(std::int64_t sequence) const {
  const int whole = static_cast<int>(WholeRows(sequence));
  const BatchPart& part = spec_.part;
  // A step may be made of several micro-batches, and each process takes its share of every one of
  // them: so its rows need not follow each other in the whole batch.
  const int micro = part.micro > 0 ? part.micro : spec_.batch_size;
  const bool mixes = part.of > 1 && DrawMix(spec_.mixing, spec_.seed, sequence,
                                            {shape().height, shape().width, shape().channels})
                                            .kind != MixDraw::Kind::kNone;
  Rows rows;
  for (int first = 0; first < whole; first += micro) {
    const Share share = ShareOf(std::min(micro, whole - first), part.of, part.index);
    const int begin = first + static_cast<int>(share.first);
    // The row before the first of this share is another process's. It is made here, mixed and
    // dropped by Finish, so that the first row meets the same one as in a run of one process.
    if (mixes && share.count > 0) {
      rows.at.push_back((begin + whole - 1) % whole);
      rows.belongs.push_back(false);
    }
    for (int row = begin; row < begin + static_cast<int>(share.count); ++row) {
      rows.at.push_back(row);
      rows.belongs.push_back(true);
    }
  }
  return rows;
}

void BatchMaker::Make(std::int64_t sequence, Batch* batch) {
  Begin(sequence, batch);
  for (int part = 0; part < parts_; ++part) MakePart(sequence, part, batch);
  Finish(sequence, batch);
}

void BatchMaker::Begin(std::int64_t sequence, Batch* batch) const {
  const auto rows = static_cast<std::int64_t>(RowsOf(sequence).at.size());
  ADA_CHECK(dataset_.images() == images_);
  // If a mapped file was truncated, reading the missing part would kill the process.
  writer_->CheckUnchanged();
  batch->rows = static_cast<int>(rows);
  batch->whole_rows = static_cast<int>(WholeRows(sequence));
  const auto resize = [rows](auto& values, std::int64_t of_row) {
    values.resize(static_cast<std::size_t>(rows * of_row));
  };
  // The vectors keep the memory of the batch that was in this slot before.
  spec_.as_bytes ? resize(batch->bytes, sizes_.image) : resize(batch->images, sizes_.image);
  resize(batch->tokens, sizes_.tokens);
  resize(batch->labels, sizes_.labels);
  resize(batch->locations, sizes_.locations);
  batch->numbers.resize(static_cast<std::size_t>(rows));
  batch->broken.clear();
}

void BatchMaker::MakePart(std::int64_t sequence, int part, Batch* batch) {
  const std::int64_t epoch = sequence / batches_per_epoch_;
  const std::int64_t first = FirstOf(sequence);
  const std::vector<int> rows = RowsOf(sequence).at;
  const std::shared_ptr<const Order> order =
      spec_.shuffle && !writer_->draws() ? orders_.Get(epoch) : nullptr;
  // The last batch of an epoch has fewer rows, and parts beyond them are empty.
  const int begin = parts_ == 1 ? 0 : std::min(part * kRowsOfPart, batch->rows);
  const int end = parts_ == 1 ? batch->rows : std::min(begin + kRowsOfPart, batch->rows);
  const auto image_at = [&](int row) -> std::int64_t {
    const std::int64_t at = first + rows[static_cast<std::size_t>(row)];
    return order ? (*order)[static_cast<std::size_t>(at)] : at;
  };
  for (int row = begin; row < end; ++row) {
    if (row + 1 < end) writer_->Prefetch(image_at(row + 1));
    MakeRow(epoch, image_at(row), row, batch);
  }
}

void BatchMaker::WriteRow(std::int64_t epoch, std::int64_t image, int row, Batch* batch) const {
  batch->numbers[static_cast<std::size_t>(row)] = static_cast<std::uint32_t>(image);
  const auto place = [row](auto& values, std::int64_t of_row) {
    return of_row == 0 ? nullptr : values.data() + row * of_row;
  };
  RowPlace out;
  if (spec_.as_bytes)
    out.bytes = place(batch->bytes, sizes_.image);
  else
    out.values = place(batch->images, sizes_.image);
  out.tokens = place(batch->tokens, sizes_.tokens);
  out.labels = place(batch->labels, sizes_.labels);
  out.locations = place(batch->locations, sizes_.locations);
  // Decoding may need much memory: if there is not enough, the message names the file.
  if (!writer_->is_slow()) return writer_->Write(epoch, image, out);
  WithMemory(writer_->NameOf(epoch, image), "make the network's input of it",
             [&] { writer_->Write(epoch, image, out); });
}

// An image that cannot be read is passed over: the next one of the data set takes its place, as it
// is itself in this epoch.
void BatchMaker::MakeRow(std::int64_t epoch, std::int64_t image, int row, Batch* batch) {
  if (spec_.on_broken == OnBroken::kFail) return WriteRow(epoch, image, row, batch);
  BrokenImage broken;
  if (WriteUsable(epoch, image, row, batch, &broken)) return;
  {
    const std::lock_guard lock(mutex_);
    batch->broken.push_back(broken);
  }
  if (spec_.on_broken == OnBroken::kLeaveOut) return;
  if (WriteNextUsable(epoch, image, row, batch, &broken)) return;
  throw DataError("none of the " + std::to_string(images_) +
                  " images can be read; the last: " + broken.message);
}

// Goes from one image to the next that is not known to be broken. What it finds is noted for each
// image that it came by, so that a long series of broken ones is gone through once.
bool BatchMaker::WriteNextUsable(std::int64_t epoch, std::int64_t image, int row, Batch* batch,
                                 BrokenImage* broken) {
  const auto next_of = [&](std::int64_t at) {
    const std::lock_guard lock(mutex_);
    const auto known = usable_after_.find(at);
    return known != usable_after_.end() ? known->second : (at + 1) % images_;
  };
  std::vector<std::int64_t> passed = {image};
  std::int64_t gone = 0;  // images, until all have been gone by
  for (;;) {
    const std::int64_t at = passed.back(), next = next_of(at);
    gone += (next - at + images_) % images_;
    if (gone >= images_ || next == at) return false;
    if (WriteUsable(epoch, next, row, batch, broken)) {
      const std::lock_guard lock(mutex_);
      for (const std::int64_t other : passed) usable_after_[other] = next;
      return true;
    }
    passed.push_back(next);
  }
}

// Writes the image, or records why that is impossible; it is then not tried again.
bool BatchMaker::WriteUsable(std::int64_t epoch, std::int64_t image, int row, Batch* batch,
                             BrokenImage* broken) {
  {
    // The image was decoded without the lock. If several threads found it broken, the first message
    // is kept, so that all batches have the same.
    const std::lock_guard lock(mutex_);
    const auto known = broken_.find(image);
    if (known != broken_.end()) *broken = known->second;
    broken->row = row;
    if (known != broken_.end()) return false;
  }
  if (Usable(image, writer_->NameOf(epoch, image), broken,
             [&] { WriteRow(epoch, image, row, batch); }))
    return true;
  const std::lock_guard lock(mutex_);
  *broken = broken_.emplace(image, *broken).first->second;
  broken->row = row;
  return false;
}

void BatchMaker::Finish(std::int64_t sequence, Batch* batch) {
  std::sort(batch->broken.begin(), batch->broken.end(),
            [](const BrokenImage& a, const BrokenImage& b) { return a.row < b.row; });
  batch->second_labels.clear(), batch->shares.clear();
  // Rows that were not written are removed before rows are mixed, so that none is mixed with
  // uninitialized memory. That changes the number of rows, which RowsOf does not know: a spec that
  // leaves out rows must not mix, so that no row has to be removed below.
  ADA_CHECK(spec_.on_broken != OnBroken::kLeaveOut || !spec_.mixing.any());
  if (spec_.on_broken == OnBroken::kLeaveOut && !batch->broken.empty()) {
    std::vector<bool> good(static_cast<std::size_t>(batch->rows), true);
    for (const BrokenImage& broken : batch->broken)
      good[static_cast<std::size_t>(broken.row)] = false;
    KeepRows(good, batch);
  }
  MixBatch(spec_.mixing, spec_.seed, sequence, {shape().height, shape().width, shape().channels},
           batch);
  const std::vector<bool> belongs = RowsOf(sequence).belongs;
  if (std::count(belongs.begin(), belongs.end(), false) > 0) {
    std::erase_if(batch->broken, [&belongs](const BrokenImage& image) {
      return !belongs[static_cast<std::size_t>(image.row)];
    });
    KeepRows(belongs, batch);
  }
  batch->terms = writer_->TermsOf(batch->labels);
}

// Moves the rows that are kept to the front.
void BatchMaker::KeepRows(const std::vector<bool>& keep, Batch* batch) const {
  const auto kept = std::count(keep.begin(), keep.end(), true);
  const auto move = [&](auto& values, std::int64_t size) {
    auto to = values.begin();
    for (std::size_t row = 0; row < keep.size(); ++row) {
      if (!keep[row]) continue;
      const auto from = values.begin() + static_cast<std::int64_t>(row) * size;
      to = from == to ? to + size : std::copy_n(from, size, to);
    }
    values.resize(static_cast<std::size_t>(kept * size));
  };
  spec_.as_bytes ? move(batch->bytes, sizes_.image) : move(batch->images, sizes_.image);
  move(batch->tokens, sizes_.tokens);
  move(batch->labels, sizes_.labels);
  move(batch->locations, sizes_.locations);
  move(batch->numbers, 1);
  move(batch->second_labels, batch->second_labels.empty() ? 0 : 1);
  move(batch->shares, batch->shares.empty() ? 0 : 1);
  batch->rows = static_cast<int>(kept);
}

}  // namespace ada::data
