// Ops as the backend hands them out: before each call the pass's values are stored where kernels
// read them, unless Backend::Run has done so, and work on the side stream is waited for where the
// op writes what it reads.
#pragma once
#include <memory>
#include <type_traits>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/side_stream.h"
#include "backend/cuda/stream.h"
#include "error.h"

namespace ada::backend::cuda {

// The values of the pass whose work is being asked for, in backend memory.
// The backend has one. Kernels read seed, S, the draw and the like from it, so that a recorded step
// can run with other values than those that it was recorded with.
class PassStore {
 public:
  // memory: of one PassValues.
  PassStore(Stream& stream, std::byte* memory);
  const PassValues* values() const { return values_; }
  // All work asked for from now on is of `pass`, unless an outer pass is Scope.
  void Set(const Pass& pass);
  // While it lives, all work is of `pass`, and Set does nothing: the work may be being recorded.
  // Within another its values are that one's.
  class Scope {
   public:
    Scope(PassStore& store, const Pass& pass) : store_(store), was_held_(store.held_) {
      ADA_CHECK(!was_held_ || ValuesOf(pass) == store.last_);
      store_.Set(pass);
      store_.held_ = true;
    }
    ~Scope() { store_.held_ = was_held_; }
    Scope(const Scope&) = delete;

   private:
    PassStore& store_;
    const bool was_held_;
  };

 private:
  // Only what kernels read on the device: rows and flags are arguments of launches, and part of the
  // key under which a step is recorded.
  static PassValues ValuesOf(const Pass& pass) {
    return {pass.seed, pass.draw, pass.loss_terms, pass.edge, pass.loss_scale, pass.share};
  }

  Stream& stream_;
  PassValues* values_;
  PassValues last_;
  bool known_ = false, held_ = false;
};

// Calls visit(gradient) with every gradient of a spec, empty ones included.
template <class Part, class Visitor>
void ForEachGradient(Part& part, const Visitor& visit) {
  if constexpr (std::is_same_v<Part, Gradient>) {
    visit(part);
  } else if constexpr (std::is_pointer_v<Part> || std::is_same_v<Part, Tensor>) {
    return;
  } else if constexpr (requires { part.begin(); }) {
    for (auto& element : part) ForEachGradient(element, visit);
  } else {
    part.Visit([&](auto&... parts) { (ForEachGradient(parts, visit), ...); });
  }
}

// The gradients that Backward of an op with this spec may write: its own outputs, and of its inputs
// at most dy, which a batch norm masks.
template <class Spec>
std::vector<Range> GradientsWrittenBy(Spec spec) {
  std::vector<Range> written;
  if constexpr (std::is_base_of_v<MatmulSpec, Spec>)
    written.push_back(RangeOf(spec.dx.tensor));
  else if constexpr (std::is_same_v<Spec, BranchSumSpec>)
    written.push_back(RangeOf(spec.sum.tensor));
  else
    ForEachGradient(spec, [&](const Gradient& g) { written.push_back(RangeOf(g.tensor)); });
  return written;
}

// Null stays null. written: see above.
// Wraps an op so that each call sets the pass's values first.
std::unique_ptr<Op> InPass(PassStore& store, SideStream& side_stream, std::unique_ptr<Op> op,
                           const std::vector<Range>& written);
std::unique_ptr<InputOp> InPass(PassStore& store, std::unique_ptr<InputOp> op);
std::unique_ptr<LossOp> InPass(PassStore& store, std::unique_ptr<LossOp> op);

}  // namespace ada::backend::cuda
