// Threads that parse and sort chunks of a trace's text, which come back in the order in which they were given.
//
//   ParserPool pool(&tables, 2);
//   pool.Submit(std::move(chunk));
//   while (pool.pending() > 0) Use(*pool.TakeFirst());
//
// Used by one thread.

#ifndef TRAINPERF_TRACE_PARSER_POOL_H_
#define TRAINPERF_TRACE_PARSER_POOL_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "trainperf/trace/event_batch.h"
#include "trainperf/trace/trace_tables.h"

namespace trainperf {

struct Chunk {
  std::vector<char> text;  // EventParser::kPadding readable bytes follow `size`
  size_t size = 0;
  // What a parser made of it.
  size_t used = 0;
  EventBatch batch;
  bool done = false;
};

class ParserPool {
 public:
  // Fewer threads, or none, where the system gives no more: see threads().
  ParserPool(TraceTables* tables, int threads);
  ~ParserPool();

  size_t threads() const { return threads_.size(); }
  size_t pending() const { return order_.size(); }
  void Submit(std::unique_ptr<Chunk> chunk);
  // Waits for it.
  std::unique_ptr<Chunk> TakeFirst();

 private:
  void Work(TraceTables* tables);

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::deque<Chunk*> todo_;
  std::deque<std::unique_ptr<Chunk>> order_;  // only the owner's thread changes it
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace trainperf

#endif  // TRAINPERF_TRACE_PARSER_POOL_H_
