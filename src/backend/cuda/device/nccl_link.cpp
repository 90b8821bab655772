// One communicator whose messages all lie in the order of the stream's aside: the same order in
// every process, which is what NCCL asks for. It only moves bytes: sums are this program's.
#include "backend/cuda/device/nccl_link.h"

#include <nccl.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/library.h"
#include "error.h"

namespace {

// Most functions return a status; the two that return texts are called by hand.
template <class... Arguments>
ncclResult_t Call(const char* name, Arguments... arguments) {
  using Function = ncclResult_t (*)(Arguments...);
  return reinterpret_cast<Function>(ada::backend::cuda::Nccl().Get(name))(arguments...);
}

}  // namespace

// NCCL's functions that this file calls, as in device_functions.cpp: the program starts where NCCL
// is missing.
extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) { return Call(__func__, id); }
ncclResult_t ncclCommInitRank(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank) {
  return Call(__func__, comm, ranks, id, rank);
}
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return Call(__func__, comm); }
ncclResult_t ncclCommAbort(ncclComm_t comm) { return Call(__func__, comm); }
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  return Call(__func__, comm, error);
}
const char* ncclGetErrorString(ncclResult_t result) {
  using Function = const char* (*)(ncclResult_t);
  return reinterpret_cast<Function>(ada::backend::cuda::Nccl().Get(__func__))(result);
}
const char* ncclGetLastError(ncclComm_t comm) {
  using Function = const char* (*)(ncclComm_t);
  return reinterpret_cast<Function>(ada::backend::cuda::Nccl().Get(__func__))(comm);
}
ncclResult_t ncclAllGather(const void* mine, void* all, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return Call(__func__, mine, all, count, type, comm, stream);
}
ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return Call(__func__, from, count, type, peer, comm, stream);
}
ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return Call(__func__, to, count, type, peer, comm, stream);
}
ncclResult_t ncclGroupStart() { return Call(__func__); }
ncclResult_t ncclGroupEnd() { return Call(__func__); }

}  // extern "C"

namespace ada::backend::cuda {
namespace {

// NCCL 2.18.0, the first for the CUDA versions that this backend is built with.
constexpr int kOldest = 21800;

// 0 where NCCL is not found; does not throw.
int LoadedVersion() {
  int version = 0;
  void* const found = Nccl().Find("ncclGetVersion");
  if (found != nullptr) reinterpret_cast<decltype(&ncclGetVersion)>(found)(&version);
  return version;
}
std::string TextOf(int version) {
  return "NCCL " + std::to_string(version / 10000) + '.' + std::to_string(version / 100 % 100) +
         '.' + std::to_string(version % 100);
}

// comm: null if there is none yet. Adds NCCL's last message, which is often clearer than the
// status.
void CheckNccl(ncclResult_t result, const char* doing, ncclComm_t comm) {
  if (result == ncclSuccess) return;
  std::string text = "NCCL, " + std::string(doing) + ": " + ncclGetErrorString(result);
  const char* const more = ncclGetLastError(comm);
  if (more != nullptr && *more != '\0') text += " (" + std::string(more) + ")";
  throw DeviceError(text + "; NCCL_DEBUG=INFO has it say what it does");
}

// A connection made by a separate thread, because another process may never join. It is shared by
// that thread and the one that waits, so that what a thread writes to stays alive even if the
// thread never returns.
struct Connecting {
  ncclUniqueId id;
  ncclComm_t comm = nullptr;
  std::exception_ptr error;
  std::atomic<bool> done{false};
  void Connect(int index, int ranks, int rank) {
    try {
      CheckCuda(cudaSetDevice(index), "choosing the device");
      CheckNccl(ncclCommInitRank(&comm, ranks, id, rank), "connecting the GPUs of the processes",
                nullptr);
    } catch (...) {
      error = std::current_exception();
    }
    done = true;
  }
};

// Belongs to the backend and lives as long as the stream. Messages are work of the stream that is
// given: calls return at once.
class NcclLink final : public Link {
 public:
  NcclLink(DeviceStream& stream, const Communicators& communicators, int index)
      : Link(stream, communicators), device_stream_(stream), comm_(Connected(hosts_, index)) {
    stream.SetPatience([this](const std::function<bool()>& done) { Wait(done); });
  }
  ~NcclLink() override {
    device_stream_.SetPatience(nullptr);
    // An error ends this process: others are not waited for.
    if (std::uncaught_exceptions() > 0)
      Abort();
    else if (comm_ != nullptr)
      ncclCommDestroy(comm_);
  }

  void AllGather(Stream& side, const void* mine, std::size_t bytes, void* all) override {
    Check(ncclAllGather(mine, all, bytes, ncclUint8, comm_, side.handle()));
  }
  // A group, so that sends and receives of all pairs go on at the same time and none waits for
  // another in a circle.
  void AllToAll(Stream& side, const void* mine, std::size_t bytes, void* parts) override {
    Check(ncclGroupStart());
    // An error is told after the group's end: messages that are asked for in a group that stays
    // open are never sent.
    ncclResult_t first = ncclSuccess;
    const auto ask = [&first](ncclResult_t result) {
      if (first == ncclSuccess) first = result;
    };
    for (int other = 0; other < ranks(); ++other) {
      const std::size_t at = static_cast<std::size_t>(other) * bytes;
      ask(ncclSend(static_cast<const std::byte*>(mine) + at, bytes, ncclUint8, other, comm_,
                   side.handle()));
      ask(ncclRecv(static_cast<std::byte*>(parts) + at, bytes, ncclUint8, other, comm_,
                   side.handle()));
    }
    ask(ncclGroupEnd());
    Check(first);
  }

 private:
  // Rank 0 makes an address, which all get by messages between the hosts. NCCL then waits for all
  // without a limit, which is why another thread connects and this one waits with the hosts'
  // patience.
  static ncclComm_t Connected(parallel::Communicator& hosts, int index) {
    // Buffers that NCCL knows of would have to be captured by all processes at a time.
    setenv("NCCL_GRAPH_REGISTER", "0", /*overwrite=*/0);
    const auto connecting = std::make_shared<Connecting>();
    std::vector<ncclUniqueId> ids(static_cast<std::size_t>(hosts.ranks()));
    ncclUniqueId mine = {};
    if (hosts.rank() == 0)
      CheckNccl(ncclGetUniqueId(&mine), "making an address for the processes", nullptr);
    hosts.AllGather(&mine, sizeof mine, ids.data());
    connecting->id = ids[0];
    std::thread([connecting, index, ranks = hosts.ranks(), rank = hosts.rank()] {
      connecting->Connect(index, ranks, rank);
    }).detach();
    hosts.WaitUntil([&connecting] { return connecting->done.load(); });
    if (connecting->error) std::rethrow_exception(connecting->error);
    return connecting->comm;
  }

  void Check(ncclResult_t result) const { CheckNccl(result, "a message between GPUs", comm_); }
  // A kernel of NCCL's waits on the GPU for as long as another process does not come.
  // Asks NCCL for errors while it waits.
  void Wait(const std::function<bool()>& done) {
    if (std::uncaught_exceptions() > 0) {
      Abort();
      while (!done()) std::this_thread::yield();
      return;
    }
    try {
      hosts_.WaitUntil([&] {
        ncclResult_t state = ncclSuccess;
        Check(ncclCommGetAsyncError(comm_, &state));
        if (state != ncclInProgress) Check(state);
        return done();
      });
    } catch (...) {
      Abort();  // or what is destroyed on the way out would wait for ever
      throw;
    }
  }
  // Ends kernels of NCCL that wait on the GPU; there is no communicator afterwards. Recorded steps
  // go first, as ncclCommAbort returns only after all graphs that hold its messages are destroyed.
  void Abort() {
    if (comm_ == nullptr) return;
    device_stream_.DestroyGraphs();
    ncclCommAbort(std::exchange(comm_, nullptr));
  }

  DeviceStream& device_stream_;
  ncclComm_t comm_;
};

}  // namespace

std::unique_ptr<Link> MakeDeviceLink(DeviceStream& stream, const Communicators& communicators,
                                     int index) {
  return std::make_unique<NcclLink>(stream, communicators, index);
}

std::string WhyNoDeviceLink() {
  if (std::string missing = Nccl().WhyMissing(); !missing.empty()) return missing;
  const int version = LoadedVersion();
  if (version >= kOldest) return "";
  return TextOf(version) + " is too old; install 2.18 or newer";
}

std::string DeviceLinkVersion() {
  const int version = LoadedVersion();
  return version == 0 ? "NCCL not found" : TextOf(version);
}

}  // namespace ada::backend::cuda
