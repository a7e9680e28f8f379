// Both sides of an LL exchange at the same time; TB_SOURCE is the file with portability.h and ll.hip.
#include "weak_memory.hpp"
#include TB_SOURCE

struct Message {
  tb_u64 *ring, *back, *ack, *arrived, *stamps;
  tb_ll_report *sender, *receiver;
  tb_u32 blocks, lines, iterations;
  tb_u64 first_flag, ticks, seed;
};

static void send(void* arguments) {
  const Message& m = *static_cast<Message*>(arguments);
  tb_ll_send(m.ring, m.ack, m.stamps, m.sender, m.lines, m.iterations, m.first_flag, m.ticks);
}

static void receive(void* arguments) {
  const Message& m = *static_cast<Message*>(arguments);
  tb_ll_receive(m.ring, m.ack, m.arrived, m.receiver, m.lines, m.iterations, m.first_flag, m.ticks);
}

extern "C" __attribute__((visibility("default"))) tb_u64 exchange(const weak::Settings* settings, Message* message) {
  const weak::Launch launches[] = {{message->blocks, TB_THREADS, receive, message},
                                   {message->blocks, TB_THREADS, send, message}};
  return weak::run(*settings, launches, 2);
}

#if TB_ORDER == TB_PACKED

static void lead(void* arguments) {
  const Message& m = *static_cast<Message*>(arguments);
  tb_ll_ping_pong(m.ring, m.back, m.stamps, m.sender, m.seed, m.iterations, m.first_flag, m.ticks);
}

static void follow(void* arguments) {
  const Message& m = *static_cast<Message*>(arguments);
  tb_ll_ping_pong(m.back, m.ring, m.stamps + 1 + m.iterations, m.receiver, 0, m.iterations, m.first_flag, m.ticks);
}

extern "C" __attribute__((visibility("default"))) tb_u64 ping_pong(const weak::Settings* settings, Message* message) {
  const weak::Launch launches[] = {{1, 1, follow, message}, {1, 1, lead, message}};
  return weak::run(*settings, launches, 2);
}

#endif
