#include "timeline.hpp"

#include <algorithm>
#include <limits>
#include <set>

#include "grid.hpp"

namespace emulator {
namespace {

std::mutex& clock_mutex() {
  static std::mutex* instance = new std::mutex;
  return *instance;
}
double host_seconds = 0;

double duplex_of(const Resource& link) { return model().link(link.from, link.to).duplex; }

}  // namespace

double host_clock() {
  std::lock_guard lock(clock_mutex());
  return host_seconds;
}

double advance_host_clock(double seconds) {
  std::lock_guard lock(clock_mutex());
  return host_seconds += seconds;
}

void raise_host_clock(double to) {
  std::lock_guard lock(clock_mutex());
  host_seconds = std::max(host_seconds, to);
}

Timeline& timeline() {
  static Timeline* instance = new Timeline;  // never destroyed: threads of streams outlive static destructors
  return *instance;
}

HardwareQueue& Timeline::new_queue() { return queues_.emplace_back(); }

void Timeline::drop(HardwareQueue& queue) {
  queues_.remove_if([&](const HardwareQueue& other) { return &other == &queue; });
}

OperationPtr Timeline::add(HardwareQueue& queue, Job job, int device, std::vector<OperationPtr> after,
                           double enqueued) {
  auto made = std::make_shared<Operation>();
  made->job = std::move(job);
  made->device = device;
  made->after = std::move(after);
  made->enqueued = enqueued;
  made->number = ++made_;
  made->queue = &queue;
  if (!queue.pending.empty()) made->before = queue.pending.back();
  queue.pending.push_back(made);
  return made;
}

OperationPtr Timeline::next_target(const OperationPtr& wanted) {
  std::vector<OperationPtr> looking = {wanted}, waiting;
  std::set<const Operation*> seen;
  bool all_executed = true;
  while (!looking.empty()) {
    const OperationPtr one = looking.back();
    looking.pop_back();
    if (!one || one->over() || !seen.insert(one.get()).second) continue;
    all_executed &= one->executed;
    if (!one->executed && one->waits_for) waiting.push_back(one->waits_for);
    looking.push_back(one->before);
    looking.insert(looking.end(), one->after.begin(), one->after.end());
  }
  if (all_executed) return wanted;
  for (const OperationPtr& writer : waiting) {
    if (OperationPtr target = next_target(writer)) return target;
  }
  return nullptr;
}

void Timeline::note_late_writes(const OperationPtr& operation) {
  if (operation->outcome.written_by_over.size) late_writers_.push_back(operation);
}

OperationPtr Timeline::late_writer(const Operation& operation) const {
  for (const OperationPtr& writer : late_writers_) {
    if (writer->number > operation.number) continue;
    const Range& late = writer->outcome.written_by_over;
    if (late.meets(operation.job.reads) || late.meets(operation.job.writes)) return writer;
  }
  return nullptr;
}

void Timeline::advance(const OperationPtr& target) {
  for (const OperationPtr& operation : under_way_) {
    if (operation->phase == Operation::Phase::Unknown && operation->executed) price(*operation);
  }
  freed_ = false;
  while (!target->over() && !freed_ && step()) {}
}

bool Timeline::step() {
  if (flows_changed_) share();
  const Next next = next_event();
  if (next.changes) change(next.changes, next.at);
  else if (next.starts) begin(*next.starts, next.at);
  return next.changes || next.starts;
}

// Of events at one moment what ends comes first, then what was enqueued first.
Timeline::Next Timeline::next_event() {
  Next next{std::numeric_limits<double>::infinity(), nullptr, nullptr};
  for (const OperationPtr& operation : under_way_) {
    const double at = next_change(*operation, now_);
    if (at < next.at) next = {at, operation, nullptr};
  }
  for (HardwareQueue& queue : queues_) {
    if (queue.pending.empty()) continue;
    const Operation& head = *queue.pending.front();
    if (head.phase != Operation::Phase::Waiting) continue;
    const double at = ready(head);
    const bool first = at < next.at || (next.starts && at == next.at && head.number < next.starts->pending[0]->number);
    if (first) next = {at, nullptr, &queue};
  }
  return next;
}

double Timeline::next_change(const Operation& operation, double now) {
  const Price& price = operation.price;
  switch (operation.phase) {
    case Operation::Phase::SettingUp: return price.data_begin;
    case Operation::Phase::Flowing: {
      const double undisturbed = price.data_end + operation.delay;
      return operation.speed == 1 ? undisturbed : now + (undisturbed - now) / operation.speed;
    }
    case Operation::Phase::Ending: return std::max(price.data_end, price.at_least);
    default: return std::numeric_limits<double>::infinity();
  }
}

// When the first operation of its queue can begin; never, as far as is known, while it waits for another or an engine.
double Timeline::ready(const Operation& operation) {
  if (operation.waits_for) return std::numeric_limits<double>::infinity();
  double at = std::max(operation.queue->clock, operation.enqueued);
  for (const OperationPtr& other : operation.after) {
    if (!other->over()) return std::numeric_limits<double>::infinity();
    at = std::max(at, other->end);
  }
  if (const Engines* engines = engines_of(operation)) {
    if (engines->busy >= Timeline::engines(operation)) return std::numeric_limits<double>::infinity();
    at = std::max(at, engines->freed);
  }
  return at;
}

Timeline::Engines* Timeline::engines_of(const Operation& operation) {
  const Job& job = operation.job;
  return job.by_engine ? &engines_[{job.engine_of, job.over_xgmi}] : nullptr;
}

int Timeline::engines(const Operation& operation) {
  return operation.job.over_xgmi ? model().xgmi_copy_engines : model().copy_engines;
}

void Timeline::pass(double to) {
  if (to <= now_) return;
  for (const OperationPtr& operation : under_way_) {
    if (operation->phase != Operation::Phase::Flowing || operation->speed == 1) continue;
    operation->delay += (to - now_) * (1 - operation->speed);
  }
  now_ = to;
}

void Timeline::begin(HardwareQueue& queue, double at) {
  const OperationPtr operation = queue.pending.front();
  pass(at);
  if (Engines* engines = engines_of(*operation)) ++engines->busy;
  operation->before.reset();
  operation->after.clear();
  operation->gap = at > queue.clock;
  operation->start = {at, queue.moved_data && !operation->gap};
  operation->phase = Operation::Phase::Unknown;
  under_way_.push_back(operation);
  if (operation->executed) price(*operation);
}

// Data that were to flow at a moment that has passed flowed undisturbed until now: what waited for another kernel is
// known late, and does not change what has been told of that time.
void Timeline::price(Operation& operation) {
  const double at = operation.start.at;
  if (operation.outcome.price) operation.price = operation.outcome.price(operation.start, Caches::LookedUp);
  else operation.price = {at, at, at, operation.job.data, {}};
  const Price& price = operation.price;
  if (price.flow.uses.empty() || price.data_end <= std::max(now_, price.data_begin)) {
    operation.phase = Operation::Phase::Ending;
  } else {
    operation.phase = price.data_begin <= now_ ? Operation::Phase::Flowing : Operation::Phase::SettingUp;
    flows_changed_ |= operation.phase == Operation::Phase::Flowing;
  }
}

void Timeline::change(const OperationPtr& operation, double at) {
  pass(at);
  switch (operation->phase) {
    case Operation::Phase::SettingUp:
      operation->phase = Operation::Phase::Flowing;
      flows_changed_ = true;
      break;
    case Operation::Phase::Flowing:
      operation->price.data_end = at;
      operation->phase = Operation::Phase::Ending;
      flows_changed_ = true;
      break;
    default:
      operation->end = at;
      finish(operation);
  }
}

void Timeline::finish(const OperationPtr& operation) {
  operation->phase = Operation::Phase::Over;
  under_way_.erase(std::find(under_way_.begin(), under_way_.end(), operation));
  if (Engines* engines = engines_of(*operation)) {
    if (engines->busy == Timeline::engines(*operation)) engines->freed = std::max(engines->freed, operation->end);
    --engines->busy;
  }
  HardwareQueue& queue = *operation->queue;
  queue.pending.pop_front();
  queue.clock = operation->end;
  const Data data = operation->price.data;
  if (data != Data::Transparent) queue.moved_data = data == Data::Moved;
  else if (operation->gap) queue.moved_data = false;
  if (operation->outcome.over) operation->outcome.over(operation->start.at, operation->end);
  const auto late = std::find(late_writers_.begin(), late_writers_.end(), operation);
  if (late != late_writers_.end()) {
    late_writers_.erase(late);
    freed_ = true;
  }
  operation->outcome = {};  // what it moved is no longer needed
  operation->job = {};
  operation->changed.notify_all();
}

void Timeline::share() {
  std::vector<const Flow*> flows;
  std::vector<Operation*> flowing;
  for (const OperationPtr& operation : under_way_) {
    if (operation->phase != Operation::Phase::Flowing) continue;
    flowing.push_back(operation.get());
    flows.push_back(&operation->price.flow);
  }
  const std::vector<double> found = speeds(flows, duplex_of);
  for (size_t i = 0; i < flowing.size(); ++i) flowing[i]->speed = found[i];
  flows_changed_ = false;
}

}  // namespace emulator
