// The low-precision copy of one weight tensor: rounded once in every refresh, then packed in the
// order and storage in which the products of its layer read it; and what one product multiplies
// where it rounds that copy once more.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/context.h"
#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/matmul/operands.h"
#include "backend/cuda/memory.h"
#include "backend/cuda/rounding/rounding_stats.h"
#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

// Refreshes the copies of weights of several layers in one launch, which reads its work from a
// table in backend memory.
// The copies of one weight tensor, as a refresh of several sees them (WeightCopies).
class RefreshedWeights {
 public:
  // Its own among all of a backend.
  virtual std::int64_t number() const = 0;
  // What a refresh does, but for how it is cut into blocks; and what it measures.
  virtual WeightTensor Describe(const Pass& pass) const = 0;
  virtual StatsLevel Level(const Pass& pass) const = 0;
  // The part of a refresh that follows what Describe describes: operands that are rounded.
  virtual void RefreshOperands(const Pass& pass) const = 0;

 protected:
  ~RefreshedWeights() = default;
};

// One for a backend. Tables are kept: a recording that reads one may be replayed at any time.
class WeightRefresh {
 public:
  WeightRefresh(Stream& stream, Memory& memory) : stream_(stream), memory_(memory) {}
  // A number that identifies tensors, even those of ops that no longer exist.
  std::int64_t NextNumber() { return next_++; }
  // At once, or at the end of the InOneLaunch that runs.
  void Refresh(const RefreshedWeights& weights, const Pass& pass);
  // Performs the refreshes that `body` makes with `pass` in one launch, except for operands that
  // are rounded. A table is made when tensors are first refreshed together, which is never while
  // such a pass is recorded (ops/pass_ops.h).
  void InOneLaunch(const Pass& pass, const std::function<void()>& body);

 private:
  // Numbers of tensors, and what of a pass their table depends on.
  using Key = std::tuple<std::vector<std::int64_t>, bool, bool, bool>;
  struct Table {
    StatsLevel level = StatsLevel::kNone;  // the most that one of them measures
    int blocks = 0;
    const WeightTensor* tensors = nullptr;
    const std::int32_t* tensor_of_block = nullptr;
  };
  void Launch(const std::vector<const RefreshedWeights*>& all, const Pass& pass);
  Table Make(const std::vector<const RefreshedWeights*>& all, const Pass& pass);
  template <class T>
  const T* Keep(const std::vector<T>& host);

  Stream& stream_;
  Memory& memory_;
  std::int64_t next_ = 0;
  bool in_one_launch_ = false;
  std::vector<const RefreshedWeights*> waiting_;  // for the end of InOneLaunch
  std::map<Key, Table> tables_;
};

// The copy of a layer's rounded weights that one product multiplies where it rounds them once more.
// Its launches come after the one that all layers share, since it reads the rounded weights.
class WeightOperand {
 public:
  // which: an operand of `spec` that rounds.
  WeightOperand(const Context& context, const OperandPlaces& places, const MatmulSpec& spec,
                Operand which);
  // Launches what makes the copy of `weights`, fp32 in PyTorch's order.
  void Round(const Pass& pass, const float* weights) const;
  // They lie in the same order, in backend memory.
  const float* values() const { return values_; }

 private:
  Context context_;
  OperandRounding operand_;
  std::int64_t numel_, rows_;
  RoundingStats stats_;  // of the format, or of what blocks are made of
  std::optional<BlockOperand> blocks_;
  std::uint32_t* amax_ = nullptr;
  float* values_;
};

// Belongs to a MatmulOp. Rounding and packing are launched by WeightRefresh for all layers at once.
class WeightCopies final : public RefreshedWeights {
 public:
  WeightCopies(const WeightCopies&) = delete;
  // Keeps copies of spec.w in spec.w_format. moments: those of the rounded copy, in backend
  // memory, or null. If an operand of the weights is rounded, its matmul reads that copy rounded
  // once more.
  WeightCopies(const Context& context, const OperandPlaces& places, const MatmulSpec& spec,
               TensorMoments* moments);

  // In which storage products may read the copy without widening it.
  Storage storage() const { return storage_; }
  void Refresh(const Pass& pass) const { context_.weight_refresh.Refresh(*this, pass); }
  void RefreshOperands(const Pass& pass) const override;
  WeightTensor Describe(const Pass& pass) const override;
  StatsLevel Level(const Pass& pass) const override { return stats_.Level(pass); }
  std::int64_t number() const override { return number_; }
  // The copy that a product reads, kForwardW or kDxW, in `storage`. Those that were asked for
  // before Seal are packed in every Refresh, later ones (a refresh may be recorded by then)
  // whenever they are asked for.
  TensorSpan Packed(Storage storage, Operand operand);
  void Seal() { sealed_ = true; }
  // The rounded weights in PyTorch's order, fp32.
  const float* plain() const { return rounded_ != nullptr ? rounded_ : master_.f32(); }

 private:
  struct Copy {
    TensorSpan span;
    bool late;
    const WeightOperand* of;  // null: of the rounded weights
  };
  void Pack(const Copy& copy) const;
  // Null: the operand does not round.
  const WeightOperand* RoundedOperand(Operand operand) const;

  Context context_;
  std::int64_t number_;
  Tensor master_;
  WeightOrder order_;
  Storage storage_;
  RoundingStats stats_;
  float* rounded_ = nullptr;  // null where nothing is rounded
  std::optional<WeightOperand> forward_, data_;
  std::vector<Copy> copies_;
  bool sealed_ = false;
};

}  // namespace ada::backend::cuda
