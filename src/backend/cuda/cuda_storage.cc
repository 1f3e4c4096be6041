#include "backend/cuda/cuda_storage.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "backend/cuda/cuda_errors.h"
#include "backend/signals.h"

namespace dsa {
CudaStorage::CudaStorage(int ordinal, cudaStream_t stream)
    : ordinal_(ordinal), stream_(stream), allocated_(std::make_shared<std::atomic<uint64_t>>(0)) {}

CudaStorage::~CudaStorage() {
  const CudaScope scope(ordinal_);
  for (Lane& lane : lanes_)
    for (cudaEvent_t event : lane.copied)
      if (event != nullptr) cudaEventDestroy(event);
  for (cudaEvent_t event : marks_)
    if (event != nullptr) cudaEventDestroy(event);
}

Result<Memory> CudaStorage::allocate(size_t bytes, const char* what) {
  const CudaScope scope(ordinal_);
  void* memory = nullptr;
  const size_t taken = std::max<size_t>(bytes, 1);
  if (const cudaError_t failure = cudaMalloc(&memory, taken); failure != cudaSuccess) {
    (void)cudaGetLastError();  // an allocation that fails harms nothing
    if (failure != cudaErrorMemoryAllocation) return cuda_status(failure, "no device memory for ", what);
    size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) free = 0;
    return error(Code::out_of_device_memory, "no device memory for ", what, ": ", bytes, " bytes needed, ",
                 free, " of ", total, " free")
        .with_fix(Fix::lower_budget)
        .with_native(failure)
        .with_room(bytes, free);
  }
  allocated_->fetch_add(taken, std::memory_order_relaxed);
  return Memory(memory, [ordinal = ordinal_, taken, allocated = allocated_](void* p) {
    const CudaScope again(ordinal);
    (void)cudaFree(p);
    allocated->fetch_sub(taken, std::memory_order_relaxed);
  });
}

Result<Memory> CudaStorage::allocate_pinned(size_t bytes, const char* what) {
  const CudaScope scope(ordinal_);
  void* memory = nullptr;
  if (const cudaError_t failure = cudaHostAlloc(&memory, std::max<size_t>(bytes, 1), cudaHostAllocPortable);
      failure != cudaSuccess) {
    (void)cudaGetLastError();
    if (failure != cudaErrorMemoryAllocation) return cuda_status(failure, "no pinned memory for ", what);
    return error(Code::out_of_memory, "no pinned memory for ", what, ", ", bytes, " bytes")
        .with_fix(Fix::free_memory)
        .with_native(failure)
        .with_room(bytes, 0);
  }
  return Memory(memory, [ordinal = ordinal_](void* p) {
    const CudaScope again(ordinal);
    (void)cudaFreeHost(p);
  });
}

Result<Mirror> CudaStorage::allocate_mirror(size_t bytes, const char* what) {
  Mirror mirror;
  DSA_ASSIGN(mirror.device, allocate(bytes, what));
  DSA_ASSIGN(mirror.host, allocate_pinned(bytes, what));
  return mirror;
}

void CudaStorage::note(cudaError_t error) {
  if (error == cudaSuccess) return;
  const std::lock_guard lock(mutex_);
  if (error_ == cudaSuccess) error_ = error;
}

void CudaStorage::upload(const Mirror& mirror, size_t begin, size_t bytes) {
  if (bytes == 0) return;
  const CudaScope scope(ordinal_);
  const std::lock_guard order(order_);
  note(cudaMemcpyAsync(static_cast<char*>(mirror.device.get()) + begin,
                       static_cast<const char*>(mirror.host.get()) + begin, bytes, cudaMemcpyHostToDevice,
                       stream_));
}

void CudaStorage::download(const Mirror& mirror, size_t begin, size_t bytes) {
  if (bytes == 0) return;
  const CudaScope scope(ordinal_);
  const std::lock_guard order(order_);
  note(cudaMemcpyAsync(static_cast<char*>(mirror.host.get()) + begin,
                       static_cast<const char*>(mirror.device.get()) + begin, bytes, cudaMemcpyDeviceToHost,
                       stream_));
}

void CudaStorage::copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  const CudaScope scope(ordinal_);
  const std::lock_guard order(order_);
  note(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_));
}

void CudaStorage::clear(void* to, size_t bytes) {
  if (bytes == 0) return;
  const CudaScope scope(ordinal_);
  const std::lock_guard order(order_);
  note(cudaMemsetAsync(to, 0, bytes, stream_));
}

Status CudaStorage::finish() {
  const CudaScope scope(ordinal_);
  note(cudaStreamSynchronize(stream_));
  return take_error();
}

uint64_t CudaStorage::mark() {
  const CudaScope scope(ordinal_);
  const std::lock_guard order(order_);
  cudaEvent_t& event = marks_[++last_mark_ % kMarks];
  if (event == nullptr) note(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  if (event != nullptr) note(cudaEventRecord(event, stream_));
  return last_mark_;
}

Status CudaStorage::wait(uint64_t mark) {
  const CudaScope scope(ordinal_);
  if (cudaEvent_t event = marks_[mark % kMarks]; event != nullptr) note(cudaEventSynchronize(event));
  return take_error();
}

Status CudaStorage::take_error() {
  if (queue_ != nullptr) note(queue_->take_error());
  cudaError_t failure;
  {
    const std::lock_guard lock(mutex_);
    failure = std::exchange(error_, cudaSuccess);
  }
  if (failure == cudaSuccess) return Status::ok();
  (void)cudaGetLastError();
  return cuda_status(failure, "the device failed in a step");
}

Status CudaStorage::prepare(Lane& lane) {
  for (int i = 0; i < kPieces; ++i) {
    if (!lane.pieces[i]) {
      DSA_ASSIGN(lane.pieces[i], allocate_pinned(kPieceBytes, "copies to the device"));
    }
    if (lane.copied[i] == nullptr)
      if (const cudaError_t failure = cudaEventCreateWithFlags(&lane.copied[i], cudaEventDisableTiming);
          failure != cudaSuccess)
        return cuda_status(failure, "copies to the device");
  }
  return Status::ok();
}

cudaError_t CudaStorage::write_piece(Lane& lane, std::span<const Write> writes) {
  const int i = lane.next;
  lane.next = (i + 1) % kPieces;
  cudaError_t failure =
      cudaEventSynchronize(lane.copied[i]);  // the copy before from this piece; at once if there is none
  char* piece = static_cast<char*>(lane.pieces[i].get());
  for (const Write& w : writes) {
    std::memcpy(piece, w.from, w.bytes);
    piece += w.bytes;
  }
  const std::lock_guard order(order_);
  piece = static_cast<char*>(lane.pieces[i].get());
  for (const Write& w : writes) {
    if (failure == cudaSuccess)
      failure = cudaMemcpyAsync(w.to, piece, w.bytes, cudaMemcpyHostToDevice, stream_);
    piece += w.bytes;
  }
  return failure == cudaSuccess ? cudaEventRecord(lane.copied[i], stream_) : failure;
}

Status CudaStorage::write(void* to, const void* from, size_t bytes) {
  const CudaScope scope(ordinal_);
  const std::lock_guard lock(write_mutex_);
  DSA_TRY(prepare(lanes_[0]));
  for (size_t at = 0; at < bytes; at += kPieceBytes) {
    const Write piece{static_cast<char*>(to) + at, static_cast<const char*>(from) + at,
                      std::min(kPieceBytes, bytes - at)};
    if (const cudaError_t failure = write_piece(lanes_[0], {&piece, 1}); failure != cudaSuccess)
      return cuda_status(failure, "a copy to the device failed");
  }
  return Status::ok();
}

// Many writes, handed out piece by piece to threads: one does not read as fast as the bus writes. The thread that called
// works too, and asks its caller whether to go on; the others wait for it before they get too far ahead.
class CudaStorage::Upload {
 public:
  Upload(CudaStorage& storage, std::span<const Write> writes, const GoOn& go_on)
      : storage_(storage), writes_(writes), go_on_(go_on) {}
  ~Upload() { join(); }

  void start(Lane& lane) {
    try {
      const SignalsBlocked blocked;
      others_.emplace_back([this, &lane] {
        const CudaScope scope(storage_.ordinal_);
        work(lane, false);
      });
    } catch (const std::exception&) {  // no more threads: those that are there do it
    }
  }
  cudaError_t run(Lane& lane) {
    work(lane, true);
    join();
    return failure_;
  }

 private:
  static constexpr size_t kBetween = kBytesBetween / 4;

  void work(Lane& lane, bool asks) {
    std::vector<Write> piece;
    cudaError_t failure = cudaSuccess;
    while (failure == cudaSuccess && (!asks || ask()) && take(piece, asks))
      failure = storage_.write_piece(lane, piece);
    if (failure != cudaSuccess) stop(failure);
  }

  bool ask() {
    const uint64_t taken = taken_.load(std::memory_order_relaxed);
    if (asked_ != kNever && taken - asked_ < kBetween) return true;
    if (!go_on_(taken)) return false;
    const std::lock_guard lock(mutex_);
    asked_ = taken;
    changed_.notify_all();
    return true;
  }

  // The next writes that fit a piece; false: there is nothing more to do.
  bool take(std::vector<Write>& piece, bool asks) {
    piece.clear();
    std::unique_lock lock(mutex_);
    if (!asks)
      changed_.wait(lock, [this] {
        return stopped_ || next_ == writes_.size() ||
               (asked_ != kNever && taken_ - asked_ < kBytesBetween - kBetween);
      });
    if (stopped_) return false;
    size_t room = kPieceBytes;
    while (room > 0 && next_ < writes_.size()) {
      const Write& w = writes_[next_];
      const size_t bytes = std::min(room, w.bytes - at_);
      piece.push_back({static_cast<char*>(w.to) + at_, static_cast<const char*>(w.from) + at_, bytes});
      room -= bytes;
      at_ += bytes;
      if (at_ < w.bytes) continue;
      at_ = 0;
      ++next_;
    }
    taken_ += kPieceBytes - room;
    return !piece.empty();
  }

  void stop(cudaError_t failure) {
    const std::lock_guard lock(mutex_);
    if (failure_ == cudaSuccess) failure_ = failure;
    stopped_ = true;
    changed_.notify_all();
  }
  // When the thread that asks has left, all is handed out or the rest is left out.
  void join() {
    stop(cudaSuccess);
    for (std::thread& other : others_) other.join();
    others_.clear();
  }

  static constexpr uint64_t kNever = UINT64_MAX;

  CudaStorage& storage_;
  const std::span<const Write> writes_;
  const GoOn& go_on_;
  std::vector<std::thread> others_;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t next_ = 0, at_ = 0;         // of the writes; within that one
  std::atomic<uint64_t> taken_ = 0;  // bytes handed out
  uint64_t asked_ = kNever;          // of them when `go_on` was asked last
  bool stopped_ = false;
  cudaError_t failure_ = cudaSuccess;
};

Status CudaStorage::write_all(std::span<const Write> writes, const GoOn& go_on) {
  const CudaScope scope(ordinal_);
  const std::lock_guard lock(write_mutex_);
  uint64_t bytes = 0;
  for (const Write& w : writes) bytes += w.bytes;
  const int lanes = int(std::min<uint64_t>({bytes / kPieceBytes + 1, uint64_t(kLanes),
                                            std::max<uint64_t>(1, std::thread::hardware_concurrency())}));
  for (int i = 0; i < lanes; ++i) DSA_TRY(prepare(lanes_[i]));
  Upload upload(*this, writes, go_on);
  for (int i = 1; i < lanes; ++i) upload.start(lanes_[i]);
  if (const cudaError_t failure = upload.run(lanes_[0]); failure != cudaSuccess)
    return cuda_status(failure, "a copy to the device failed");
  return Status::ok();
}

Status CudaStorage::read(void* to, const void* from, size_t bytes) {
  const CudaScope scope(ordinal_);
  const std::lock_guard order(order_);
  cudaError_t failure = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_);
  if (failure == cudaSuccess) failure = cudaStreamSynchronize(stream_);
  if (failure == cudaSuccess) return Status::ok();
  note(failure);
  return cuda_status(failure, "a copy from the device failed");
}

}  // namespace dsa
