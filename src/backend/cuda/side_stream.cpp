// See side_stream.h.
#include "backend/cuda/side_stream.h"

#include <algorithm>

namespace ada::backend::cuda {

SideStream::SideStream(const Context& main, const MakesMatmuls& matmuls)
    : main_(main.stream),
      own_(main.stream.switches().side_stream ? main.stream.MakeSide() : nullptr),
      stream_(own_ != nullptr ? *own_ : main_),
      matmuls_(matmuls(stream_)),
      context_{stream_,
               scratch_,
               main.shared,
               main.pass,
               main.options,
               *matmuls_,
               main.diagnostic_lines,
               main.memory,
               main.weight_refresh,
               *this,
               main.next_decisions,
               main.link} {
  if (own_ != nullptr) own_->set_trace(main_.trace(), 1);
}

void SideStream::Run(const std::vector<Range>& reads, const std::function<void()>& work) {
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
void SideStream::WaitFor(std::size_t work) {
  main_.WaitFor(*works_[work].end);
  done_ = work + 1;
}

void SideStream::BeforeWrite(const Range& written) {
  for (std::size_t i = running_; i > done_; --i) {
    const std::vector<Range>& reads = works_[i - 1].reads;
    const bool meets = std::any_of(reads.begin(), reads.end(),
                                   [&](const Range& read) { return read.Overlaps(written); });
    if (meets) return WaitFor(i - 1);
  }
}

void SideStream::Join() {
  if (running_ > done_) WaitFor(running_ - 1);
  running_ = done_ = 0;
}

}  // namespace ada::backend::cuda
