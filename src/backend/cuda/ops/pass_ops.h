// Ops as the backend hands them out: before each call the pass's values are stored where kernels
// read them, unless Backend::Run has done so.
#pragma once
#include <memory>

#include "backend/backend.h"
#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

// The values of the pass whose work is being asked for, in backend memory.
class PassStore {
 public:
  // memory: of one PassValues.
  PassStore(Stream& stream, std::byte* memory);
  const PassValues* values() const { return values_; }
  // All work asked for from now on is of `pass`, unless an outer pass is Scope.
  void Set(const Pass& pass);
  // While it lives, all work is of `pass`, and Set does nothing: the work may be being recorded.
  class Scope {
   public:
    Scope(PassStore& store, const Pass& pass) : store_(store) {
      store_.Set(pass);
      store_.held_ = true;
    }
    ~Scope() { store_.held_ = false; }
    Scope(const Scope&) = delete;

   private:
    PassStore& store_;
  };

 private:
  Stream& stream_;
  PassValues* values_;
  PassValues last_;
  bool known_ = false, held_ = false;
};

// Null stays null.
std::unique_ptr<Op> InPass(PassStore& store, std::unique_ptr<Op> op);
std::unique_ptr<InputOp> InPass(PassStore& store, std::unique_ptr<InputOp> op);
std::unique_ptr<LossOp> InPass(PassStore& store, std::unique_ptr<LossOp> op);

}  // namespace ada::backend::cuda
