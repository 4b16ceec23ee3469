#include "trainperf/trace/parser_pool.h"

#include <system_error>
#include <utility>

#include "trainperf/trace/event_parser.h"

namespace trainperf {

ParserPool::ParserPool(TraceTables* tables, int threads) {
  threads_.reserve(static_cast<size_t>(threads));
  for (int i = 0; i < threads; ++i) {
    try {
      threads_.emplace_back([this, tables] { Work(tables); });
    } catch (const std::system_error&) {
      return;  // fewer will do
    }
  }
}

ParserPool::~ParserPool() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ParserPool::Submit(std::unique_ptr<Chunk> chunk) {
  chunk->used = 0;
  chunk->done = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    todo_.push_back(chunk.get());
  }
  order_.push_back(std::move(chunk));
  wake_.notify_one();
}

std::unique_ptr<Chunk> ParserPool::TakeFirst() {
  std::unique_ptr<Chunk> chunk = std::move(order_.front());
  order_.pop_front();
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [&] { return chunk->done; });
  return chunk;
}

void ParserPool::Work(TraceTables* tables) {
  EventParser parser(tables);
  for (;;) {
    Chunk* chunk = nullptr;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !todo_.empty(); });
      if (stopping_) return;
      chunk = todo_.front();
      todo_.pop_front();
    }
    chunk->batch.Clear();
    chunk->used = parser.Parse(chunk->text.data(), chunk->size, &chunk->batch);
    chunk->batch.Sort();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      chunk->done = true;
    }
    done_.notify_one();
  }
}

}  // namespace trainperf
