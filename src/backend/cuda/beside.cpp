// See beside.h.
#include "backend/cuda/beside.h"

#include <algorithm>

namespace ada::backend::cuda {

Beside::Beside(const Context& main, const MakesProducts& products)
    : main_(main.stream),
      own_(main.stream.switches().side_stream ? main.stream.MakeSide() : nullptr),
      stream_(own_ != nullptr ? *own_ : main_),
      products_(products(stream_)),
      context_{stream_,      scratch_,    main.shared,         main.pass, main.options, *products_,
               main.remarks, main.memory, main.weight_refresh, *this,     main.link} {}

void Beside::Run(const std::vector<Range>& reads, const std::function<void()>& work) {
  if (own_ == nullptr) return work();
  if (running_ == works_.size()) works_.push_back({{}, main_.MakeEvent(), stream_.MakeEvent()});
  Work& now = works_[running_++];
  now.reads = reads;
  now.begin->Mark();
  stream_.WaitFor(*now.begin);
  work();
  now.end->Mark();
  if (!open_) Join();
}

// Works end in their order.
void Beside::WaitFor(std::size_t work) {
  main_.WaitFor(*works_[work].end);
  done_ = work + 1;
}

void Beside::BeforeWrite(const Range& written) {
  for (std::size_t i = running_; i > done_; --i) {
    const std::vector<Range>& reads = works_[i - 1].reads;
    const bool meets = std::any_of(reads.begin(), reads.end(),
                                   [&](const Range& read) { return read.Overlaps(written); });
    if (meets) return WaitFor(i - 1);
  }
}

void Beside::Join() {
  if (running_ > done_) WaitFor(running_ - 1);
  running_ = done_ = 0;
}

}  // namespace ada::backend::cuda
