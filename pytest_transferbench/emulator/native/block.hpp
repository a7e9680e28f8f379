// The inside of a running grid, shared by the scheduler, the access hooks and the functions that kernels call.
#pragma once
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "fibre.hpp"
#include "grid.hpp"

namespace emulator {

struct Block;
class Worker;

// A GPU thread that can be left and continued. Threads that never wait share one fibre, one after another.
struct Fibre {
  Context context{};
  char* stack = nullptr;
  size_t stack_size = 0;
  Block* block = nullptr;  // null while nobody uses the fibre
  unsigned thread = 0;
  Dim index;  // threadIdx

  // What this thread polled lately. Seeing an address again is what tells polling from copying.
  struct Seen {
    uintptr_t address = 0;
    uint64_t value = 0;
  };
  static constexpr unsigned REMEMBERED = 4, FRESH_POLLS_BEFORE_YIELD = 64;
  Seen seen[REMEMBERED];
  unsigned seen_next = 0, fresh_polls = 0;
  bool polled = false;
  uint64_t clock_reads = 0;

  int vote_site = 0;
  uint64_t vote_value = 0;
};

// One wavefront: lanes that exchange values wait here for each other.
struct Wave {
  unsigned alive = 0, at_barrier = 0, voting = 0;
  Fibre* voters[64] = {};
  uint64_t snapshot[64] = {}, present = 0, ballot = 0;
};

struct Grid : std::enable_shared_from_this<Grid> {
  Grid(const Launch& launch, uint64_t start_ticks);

  const Launch& launch;
  const uint64_t start_ticks, blocks;
  const unsigned resident_limit;
  std::vector<void*> arguments;
  std::atomic<hipError_t> error{hipSuccess};

  std::mutex mutex;  // guards what follows
  std::condition_variable done;
  uint64_t next = 0;
  unsigned resident = 0;
  GridOutcome outcome;

  uint8_t* marks_of(const Allocation& allocation);

  std::unique_ptr<Block> take();  // null when there is none to give now
  bool has_block();               // whether take() would give one
  bool complete() const { return resident == 0 && (next >= blocks || error != hipSuccess); }
};

struct Block {
  Block(std::shared_ptr<Grid> grid, uint64_t number);

  enum class Slice { Waiting, Progressed, Ended };
  // Runs every thread of the block that can run, once.
  Slice run(Worker& worker);

  // Called on the fibre of the thread concerned.
  void barrier(bool predicate);
  void vote(uint64_t value, int site);
  void yield();

  Wave& wave_of(unsigned thread) { return waves[thread >> wave_shift]; }
  unsigned lane_of(unsigned thread) const { return thread & (width - 1); }

  const std::shared_ptr<Grid> grid;
  Dim index;  // blockIdx
  Dim next_index{0, 0, 0};  // threadIdx of the thread that begins next
  const unsigned threads, width, wave_shift;  // a wavefront is `width` threads
  unsigned started = 0, finished = 0, at_barrier = 0, barrier_true = 0, barrier_result = 0;
  std::vector<Wave> waves;
  std::deque<Fibre*> ready;
  std::vector<Fibre*> pollers, barrier_waiters;
  std::vector<char> saved_shared;  // __shared__ memory while another block of the module uses the thread's own
  std::vector<Stamp> stamps;
  uint64_t clock_reads = 0;
  bool polled_host = false;
  double host_seen = 0;

  void begin_thread(Fibre& fibre);
  void thread_ended(Fibre& fibre);

 private:
  void release_barrier_if_full();
  void finish_vote_if_full(Wave& wave);
};

// A range of memory that one OS thread may touch without asking again, and what it has moved there.
struct AccessRange {
  uintptr_t base;
  size_t length;
  uint64_t bytes;
  int owner;
  uint8_t* marks;  // by line where reads are looked up, else one byte that nobody looks at
  unsigned shift;  // from an offset to its mark
};
constexpr unsigned NOT_MARKED = 63;
constexpr AccessRange nothing_cached{~uintptr_t{0} / 2, 16, 0, HOST, nullptr, NOT_MARKED};  // no address lies in it

enum Direction { READ = 0, WRITE = 1 };

// What the hooks look at on every access; kept small because it lies in the static TLS block.
struct ThreadState {
  AccessRange hot[2];  // by Direction
  Fibre* fibre;
  Block* block;
  Worker* worker;
};
extern __thread ThreadState thread_state __attribute__((tls_model("initial-exec"), visibility("hidden")));

// One OS thread that runs blocks. Several blocks can be resident: while one only polls, others go on.
class Worker {
 public:
  Worker() = default;
  ~Worker();

  // Runs blocks of `own` until none is left to start and all that were started here have ended; with null, of any
  // active grid, for ever.
  void serve(Grid* own);

  Fibre* idle_fibre();
  void park(Fibre* fibre) { idle_.push_back(fibre); }
  void run(Fibre* fibre);       // from the scheduler into a fibre
  void leave();                 // from a fibre back to the scheduler
  [[noreturn]] void abandon();  // from a fibre that will never continue

  // Finds the range that holds an access and makes it the cached one; null for memory private to the block. Ends the
  // block with hipErrorIllegalAddress when the access is not allowed.
  AccessRange* locate(Direction direction, uintptr_t address, size_t nbytes);
  // Bytes written by what is no waiting: the sign that something moves on.
  uint64_t progress() const;
  void not_progress(uint64_t nbytes) { waited_writes_ += nbytes; }

 private:
  void enter(Block& block);
  void end(std::unique_ptr<Block> block);
  // Adds what was moved to the totals of the grid; at the end of a block also that the block has moved it.
  void flush(unsigned blocks = 0);
  void forget_ranges();  // before another grid, or when allocations may go
  void adopt_shared_memory(Block& block);
  bool is_private(uintptr_t address) const;
  [[noreturn]] void illegal(Direction direction, uintptr_t address, size_t nbytes);

  static constexpr unsigned KNOWN = 8;
  AccessRange known_[2][KNOWN];
  unsigned known_count_[2] = {0, 0}, known_next_[2] = {0, 0};
  int hot_slot_[2] = {-1, -1};
  uint8_t not_looked_up_ = 0;
  std::shared_ptr<Grid> ranges_grid_;  // whose permissions `known_` holds
  uint64_t flushed_writes_ = 0, waited_writes_ = 0;

  std::vector<std::unique_ptr<Block>> resident_;
  struct SharedOwner {
    size_t tls_id;
    Block* block;
  };
  std::vector<SharedOwner> shared_owners_;  // whose __shared__ memory each module's TLS holds now

  Context scheduler_{};
  StackPool stacks_;
  std::vector<std::unique_ptr<Fibre>> fibres_;
  std::vector<Fibre*> idle_;
};

}  // namespace emulator
