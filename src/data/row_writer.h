// One row of a batch: what the network sees of a sample, and its labels. A pure function of (data
// set, spec, epoch, sample). Which of the two kinds of rows a batch has is known here alone.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/augment.h"
#include "data/batch.h"
#include "data/dataset.h"

namespace ada::data {

// How many values a row has of each kind.
struct RowSizes {
  std::int64_t image = 0;  // normalized values, or bytes
  std::int64_t tokens = 0;
  std::int64_t labels = 1, locations = 0;
};

// Where to write a row; null for what the row does not have.
struct RowPlace {
  float* values = nullptr;         // of an image: normalized,
  std::uint8_t* bytes = nullptr;   // or its bytes
  std::int32_t* tokens = nullptr;  // of a sequence
  std::int32_t* labels = nullptr;
  float* locations = nullptr;
};

// BatchMaker calls it for each row. It is made once for a data set and a spec, which it checks
// against each other; after that it has no state, so that rows can be written in any order.
class RowWriter {
 public:
  virtual ~RowWriter() = default;

  virtual RowSizes sizes() const = 0;
  // The shape of an image as the network takes it, or {context, 1, 1}.
  virtual ImageShape shape() const = 0;
  // Whether several threads should make one batch.
  virtual bool is_slow() const { return false; }
  // Whether the samples of an epoch are drawn, instead of each being seen once.
  virtual bool draws() const { return false; }
  // What a sample, as it is in `epoch`, is called in a message.
  virtual std::string NameOf(std::int64_t epoch, std::int64_t sample) const = 0;
  // Brings a sample on its way from memory.
  virtual void Prefetch(std::int64_t /*sample*/) const {}
  // DataError where a mapped file was cut.
  virtual void CheckUnchanged() const = 0;
  // Writes a sample as it is in `epoch`. Safe from several threads. DataError: it or its labels
  // cannot be read, or they do not fit together.
  virtual void Write(std::int64_t epoch, std::int64_t sample, const RowPlace& out) const = 0;
  // How many of a batch's labels its loss is a mean over.
  virtual std::int64_t TermsOf(const std::vector<std::int32_t>& labels) const = 0;
};

// Both outlive it. ConfigError where they do not go together.
std::unique_ptr<RowWriter> MakeRowWriter(const Dataset& dataset, const LoaderSpec& spec);

// Its parts: of images with labels, label images or boxes; of sequences of tokens.
std::unique_ptr<RowWriter> MakeImageRows(const Dataset& dataset, const LoaderSpec& spec);
std::unique_ptr<RowWriter> MakeSequenceRows(const Dataset& dataset, const LoaderSpec& spec);

}  // namespace ada::data
