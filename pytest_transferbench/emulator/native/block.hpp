// The inside of a running grid, shared by the scheduler, the access hooks and the functions that kernels call.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstring>
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
  // The drains and fences of this thread in its lap. A drain waits for something only if the thread has stored since
  // the one before; its first always counts.
  static constexpr uint64_t NEVER = ~uint64_t{0};
  uint64_t stored = 0, stored_at_drain = NEVER, lap = NEVER;
  unsigned drains = 0, write_backs = 0;

  Context context{};
  unsigned thread = 0;
  Dim index;  // threadIdx

  // What this thread polled lately. A kernel that polls up to so many words in turn reads each of them once for the
  // virtual clock, however often it looks. `news` counts the polls that saw something new: a word that is as it was
  // when the thread looked last, with no news since, is what tells waiting from copying.
  struct Seen {
    uintptr_t address = 0;
    uint64_t value = 0;
    unsigned news = 0, nbytes = 0;  // no bytes: it cannot be watched
  };
  static constexpr unsigned REMEMBERED = 8, POLLS_BEFORE_YIELD = 64;
  Seen seen[REMEMBERED];
  unsigned seen_next = 0, news = 0, polls = 0;
  bool polled = false;
  uint64_t clock_reads = 0;

  char* stack = nullptr;
  size_t stack_size = 0;
  Block* block = nullptr;  // null while nobody uses the fibre

  Seen* remembered(uintptr_t address) {
    for (Seen& one : seen) {
      if (one.address == address) return &one;
    }
    return nullptr;
  }
  Seen* remember(uintptr_t address, uint64_t value, unsigned nbytes) {
    Seen& oldest = seen[seen_next++ % REMEMBERED];
    oldest = {address, value, 0, nbytes};
    return &oldest;
  }
};

// What a polling load sees, wide enough to tell one value from another.
inline uint64_t peek(const void* pointer, size_t nbytes) {
  switch (nbytes) {
    case 1: return __atomic_load_n(static_cast<const uint8_t*>(pointer), __ATOMIC_SEQ_CST);
    case 2: return __atomic_load_n(static_cast<const uint16_t*>(pointer), __ATOMIC_SEQ_CST);
    case 4: return __atomic_load_n(static_cast<const uint32_t*>(pointer), __ATOMIC_SEQ_CST);
    case 8: return __atomic_load_n(static_cast<const uint64_t*>(pointer), __ATOMIC_SEQ_CST);
    default: {
      uint64_t words[2];
      std::memcpy(words, pointer, sizeof words);
      return words[0] ^ (words[1] * 0x9e3779b97f4a7c15u);
    }
  }
}

// A thread that waits for one of the words it polls in turn to change; with no word, for its turn.
struct Poller {
  static constexpr unsigned MOST_WORDS = 4;
  Fibre* fibre;
  unsigned words = 0;
  struct {
    const void* pointer;
    uint64_t value;
    unsigned nbytes;
  } watched[MOST_WORDS];

  bool has_news() const {
    for (unsigned i = 0; i < words; ++i) {
      if (peek(watched[i].pointer, watched[i].nbytes) != watched[i].value) return true;
    }
    return false;
  }
};

// One wavefront: lanes that exchange values wait here for each other.
struct Wave {
  static constexpr unsigned WIDEST = 64, VOTES_IN_A_ROW = 32;
  struct Vote {
    Fibre* voter = nullptr;
    int site = 0;
    uint64_t value = 0;
  };
  unsigned alive = 0, at_barrier = 0, voting = 0, votes_in_a_row = 0;
  Vote votes[WIDEST];
  uint64_t snapshot[WIDEST] = {}, present = 0, ballot = 0;
};

// Fibres that can go on, first come first served.
class Queue {
 public:
  bool empty() const { return begin_ == fibres_.size(); }
  void push(Fibre* fibre) { fibres_.push_back(fibre); }
  Fibre* pop() {
    if (begin_ + 2 * AHEAD < fibres_.size()) {
      __builtin_prefetch(fibres_[begin_ + 2 * AHEAD]);
      prefetch(fibres_[begin_ + AHEAD]->context);
    }
    Fibre* const fibre = fibres_[begin_++];
    if (empty()) {
      fibres_.clear();
      begin_ = 0;
    }
    return fibre;
  }
  auto begin() const { return fibres_.begin() + static_cast<ptrdiff_t>(begin_); }
  auto end() const { return fibres_.end(); }

 private:
  static constexpr size_t AHEAD = 3;
  std::vector<Fibre*> fibres_;
  size_t begin_ = 0;
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

  std::atomic<bool> polls{false}, let_be{false};  // a thread of it has looked at a word again; nobody waits for it

  // What a worker has said of its blocks: with `activity` things having happened, none could go on.
  struct Stillness {
    const Worker* worker;
    uint64_t activity;
    unsigned blocks = 0;
    bool watchable = true;
    std::vector<Poller> pollers;
  };
  std::vector<Stillness> stillness;

  uint8_t* marks_of(const Allocation& allocation);

  std::unique_ptr<Block> take();  // null when there is none to give now
  bool has_block();               // whether take() would give one
  bool complete() const { return resident == 0 && (next >= blocks || error != hipSuccess); }
};

struct Block {
  Block(std::shared_ptr<Grid> grid, uint64_t number);

  // Finds what can run: threads that have not begun, and pollers whose word has changed or, with `everyone`, all.
  enum class Awake { Nobody, Somebody, Noticed };  // Noticed: the word of one has changed
  Awake wake(bool everyone);

  enum class Slice { Waiting, Progressed, Ended };
  // Runs every thread of the block that can run, once.
  Slice run(Worker& worker);

  // The fibre that runs next; null when all threads wait or the grid has failed.
  Fibre* next(Worker& worker);

  // Called on the fibre of the thread concerned.
  void barrier(bool predicate);
  void vote(uint64_t value, int site);
  void yield();
  void wait_for_news();
  void drain(bool writes_back);
  void end_lap(uint64_t* stamp);

  Wave& wave_of(unsigned thread) { return waves[thread >> wave_shift]; }
  unsigned lane_of(unsigned thread) const { return thread & (width - 1); }

  const std::shared_ptr<Grid> grid;
  const Dim grid_dim, block_dim;
  Dim index;  // blockIdx
  unsigned xcc;  // the die it runs on: blocks are dealt out to the dies in turn, as Instinct GPUs do
  Dim next_index{0, 0, 0};  // threadIdx of the thread that begins next
  const unsigned threads, width, wave_shift;  // a wavefront is `width` threads
  unsigned started = 0, finished = 0, at_barrier = 0, barrier_true = 0, barrier_result = 0;
  std::vector<Wave> waves;
  Queue ready, together;  // `together`: lanes that have voted, which go on before all others
  std::vector<Poller> pollers;
  std::vector<Fibre*> barrier_waiters;
  std::vector<char> saved_shared;  // __shared__ memory while another block of the module uses the thread's own
  std::vector<Stamp> stamps;
  uint64_t clock_reads = 0;
  bool polled_host = false;
  double host_seen = 0;

  // Bytes moved since the lap began, by Direction and by owner as in Ways.
  std::vector<uint64_t> moved[2];
  uint64_t lap = 0;
  unsigned drains = 0, write_backs = 0;  // the most that one thread made in this lap

  void add_moved(Ways& ways);
  void begin_thread(Fibre& fibre);
  void thread_ended(Fibre& fibre);

 private:
  void release_barrier_if_full();
  void finish_vote_if_full(Wave& wave);

  bool restless_ = true;  // running all pollers has led to something the last time
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
  void run(Fibre* fibre);       // from the scheduler into a fibre; returns when no thread of the block can go on
  void leave();                 // from a fibre to the next that can go on
  [[noreturn]] void abandon();  // from a fibre that will never continue

  // Finds the range that holds an access and makes it the cached one; null for memory private to the block. Ends the
  // block with hipErrorIllegalAddress when the access is not allowed.
  AccessRange* locate(Direction direction, uintptr_t address, size_t nbytes);
  void count(Direction direction, AccessRange& range, size_t nbytes) {
    range.bytes += nbytes;
    if (direction == WRITE && &range != &thread_state.hot[WRITE]) stored_ += nbytes;
  }
  // Hands what was moved since it was last called to the block that moved it.
  void settle(Block& block);

  // Bytes that all threads here, or the running one, have stored.
  uint64_t stored() const { return stored_ + thread_state.hot[WRITE].bytes; }
  uint64_t stored_by(const Fibre& running) const { return running.stored + stored() - stored_at_switch_; }
  // Bytes stored by what is no waiting: the sign that something moves on.
  uint64_t progress() const { return stored() - waited_writes_; }
  void not_progress(uint64_t nbytes) { waited_writes_ += nbytes; }

 private:
  void enter(Block& block);
  void end(std::unique_ptr<Block> block);
  void forget_ranges();  // before another grid, or when allocations may go
  void adopt_shared_memory(Block& block);
  void say_still(uint64_t activity) const;  // nothing of what runs here can go on
  bool is_private(uintptr_t address) const;
  [[noreturn]] void illegal(Direction direction, uintptr_t address, size_t nbytes);

  static constexpr unsigned KNOWN = 8;
  AccessRange known_[2][KNOWN];
  unsigned known_count_[2] = {0, 0}, known_next_[2] = {0, 0};
  int hot_slot_[2] = {-1, -1};
  uint8_t not_looked_up_ = 0;
  std::shared_ptr<Grid> ranges_grid_;  // whose permissions `known_` holds
  uint64_t stored_ = 0;  // without what the hot range still counts
  uint64_t stored_at_switch_ = 0, waited_writes_ = 0;

  std::vector<std::unique_ptr<Block>> resident_;
  struct SharedOwner {
    size_t tls_id;
    Block* block;
  };
  uintptr_t shared_ = 0;  // where that of the running block begins
  std::vector<SharedOwner> shared_owners_;  // whose __shared__ memory each module's TLS holds now

  Context scheduler_{};
  StackPool stacks_;
  std::vector<std::unique_ptr<Fibre>> fibres_;
  std::vector<Fibre*> idle_;
};

}  // namespace emulator
