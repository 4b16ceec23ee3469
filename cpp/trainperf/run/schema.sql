-- The schema of a run file, version 9. docs/run-file.md explains it for people; a test keeps the two alike.
--
-- All times are CLOCK_MONOTONIC in nanoseconds (columns `*_ns`). Causes, phases, mechanisms, states and kinds are written as
-- their names. Details and spans whose step or section is -1 lie outside of the steps.

PRAGMA application_id = 1414550086;  -- 'TPRF'
PRAGMA user_version = 9;

CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- Steps in order. In a long run a row stands for `steps` neighbours: sums, or-ed flags, min and max of wall.
CREATE TABLE step (
  first_step INTEGER PRIMARY KEY,
  steps INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  wall_ns INTEGER NOT NULL,
  wall_min_ns INTEGER NOT NULL,
  wall_max_ns INTEGER NOT NULL,
  flags INTEGER NOT NULL,
  fetches INTEGER NOT NULL,
  backwards INTEGER NOT NULL,
  optimizer_steps INTEGER NOT NULL,
  compile_ns INTEGER NOT NULL,
  -- by cause: these sum to wall_ns
  data_wait_ns INTEGER NOT NULL, h2d_copy_ns INTEGER NOT NULL, gpu_wait_ns INTEGER NOT NULL,
  launch_ns INTEGER NOT NULL, cuda_alloc_ns INTEGER NOT NULL, module_load_ns INTEGER NOT NULL,
  collective_ns INTEGER NOT NULL, gil_wait_ns INTEGER NOT NULL, stop_the_world_ns INTEGER NOT NULL,
  object_lock_ns INTEGER NOT NULL, gc_ns INTEGER NOT NULL,
  checkpoint_ns INTEGER NOT NULL, validation_ns INTEGER NOT NULL, logging_ns INTEGER NOT NULL,
  descheduled_ns INTEGER NOT NULL, throttled_ns INTEGER NOT NULL, blocked_io_ns INTEGER NOT NULL,
  python_ns INTEGER NOT NULL, compute_ns INTEGER NOT NULL, unknown_ns INTEGER NOT NULL,
  -- by phase: these sum to wall_ns too
  phase_fetch_ns INTEGER NOT NULL, phase_transfer_ns INTEGER NOT NULL, phase_forward_ns INTEGER NOT NULL,
  phase_backward_ns INTEGER NOT NULL, phase_optimizer_ns INTEGER NOT NULL, phase_checkpoint_ns INTEGER NOT NULL,
  phase_validation_ns INTEGER NOT NULL, phase_logging_ns INTEGER NOT NULL, phase_other_ns INTEGER NOT NULL
);

-- Single steps that keep their own timeline (table segment): the worst, an even spread of the flagged, the first warm-ups.
CREATE TABLE kept_step (
  first_step INTEGER PRIMARY KEY,
  why TEXT NOT NULL,
  steps INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  wall_ns INTEGER NOT NULL,
  wall_min_ns INTEGER NOT NULL,
  wall_max_ns INTEGER NOT NULL,
  flags INTEGER NOT NULL,
  fetches INTEGER NOT NULL,
  backwards INTEGER NOT NULL,
  optimizer_steps INTEGER NOT NULL,
  compile_ns INTEGER NOT NULL,
  -- by cause: these sum to wall_ns
  data_wait_ns INTEGER NOT NULL, h2d_copy_ns INTEGER NOT NULL, gpu_wait_ns INTEGER NOT NULL,
  launch_ns INTEGER NOT NULL, cuda_alloc_ns INTEGER NOT NULL, module_load_ns INTEGER NOT NULL,
  collective_ns INTEGER NOT NULL, gil_wait_ns INTEGER NOT NULL, stop_the_world_ns INTEGER NOT NULL,
  object_lock_ns INTEGER NOT NULL, gc_ns INTEGER NOT NULL,
  checkpoint_ns INTEGER NOT NULL, validation_ns INTEGER NOT NULL, logging_ns INTEGER NOT NULL,
  descheduled_ns INTEGER NOT NULL, throttled_ns INTEGER NOT NULL, blocked_io_ns INTEGER NOT NULL,
  python_ns INTEGER NOT NULL, compute_ns INTEGER NOT NULL, unknown_ns INTEGER NOT NULL,
  -- by phase: these sum to wall_ns too
  phase_fetch_ns INTEGER NOT NULL, phase_transfer_ns INTEGER NOT NULL, phase_forward_ns INTEGER NOT NULL,
  phase_backward_ns INTEGER NOT NULL, phase_optimizer_ns INTEGER NOT NULL, phase_checkpoint_ns INTEGER NOT NULL,
  phase_validation_ns INTEGER NOT NULL, phase_logging_ns INTEGER NOT NULL, phase_other_ns INTEGER NOT NULL
);

CREATE TABLE segment (
  step INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  phase TEXT NOT NULL,
  mechanism TEXT NOT NULL,
  thread INTEGER NOT NULL,
  stack INTEGER NOT NULL,
  PRIMARY KEY (step, seq)
) WITHOUT ROWID;

-- Stretches of the run of equal length in steps; the last may be shorter.
CREATE TABLE section (
  id INTEGER PRIMARY KEY,
  first_step INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  wall_ns INTEGER NOT NULL
);

CREATE TABLE phase_mechanism (
  section INTEGER NOT NULL,
  phase TEXT NOT NULL,
  mechanism TEXT NOT NULL,
  ns INTEGER NOT NULL,
  PRIMARY KEY (section, phase, mechanism)
) WITHOUT ROWID;

-- What hangs below a cause, summed over a section. A row with folded > 0 holds that many small ones of its kind, phase and
-- state: their thread, stack and code are gone. Of a blocked sample, 65536 in `code`: its timeout is due in 0.1 s.
CREATE TABLE detail (
  id INTEGER PRIMARY KEY,
  section INTEGER NOT NULL,
  kind TEXT NOT NULL,
  phase TEXT NOT NULL,
  state TEXT NOT NULL,
  thread INTEGER NOT NULL,
  stack INTEGER NOT NULL,
  code INTEGER NOT NULL,
  ns INTEGER NOT NULL,
  count INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  folded INTEGER NOT NULL
);

-- The longest of each kind; span_total counts all.
CREATE TABLE span (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  step INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  cpu_ns INTEGER NOT NULL,
  object INTEGER NOT NULL,
  value INTEGER NOT NULL,
  thread INTEGER NOT NULL
);

CREATE TABLE span_total (
  kind TEXT PRIMARY KEY,
  count INTEGER NOT NULL,
  ns INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  value INTEGER NOT NULL
) WITHOUT ROWID;

-- Fetches of one loader. Each fetch is counted in one place only: exhausted, else validation, else off_thread, else first of its
-- iterator, else in count, wall_ns, cpu_ns, gil_wait_ns, max_ns and fetch_ready.
CREATE TABLE fetch (
  loader INTEGER PRIMARY KEY,
  count INTEGER NOT NULL,
  wall_ns INTEGER NOT NULL,
  cpu_ns INTEGER NOT NULL,
  gil_wait_ns INTEGER NOT NULL,
  max_ns INTEGER NOT NULL,
  first_count INTEGER NOT NULL,
  first_wall_ns INTEGER NOT NULL,
  off_thread_count INTEGER NOT NULL,
  off_thread_wall_ns INTEGER NOT NULL,
  validation_count INTEGER NOT NULL,
  validation_wall_ns INTEGER NOT NULL,
  exhausted_count INTEGER NOT NULL,
  exhausted_wall_ns INTEGER NOT NULL
);

-- ready: batches that were ready when one was asked for; -1: not known; 64: 64 or more.
CREATE TABLE fetch_ready (
  loader INTEGER NOT NULL,
  ready INTEGER NOT NULL,
  count INTEGER NOT NULL,
  wall_ns INTEGER NOT NULL,
  PRIMARY KEY (loader, ready)
) WITHOUT ROWID;

-- Of fetch.count, fetches that waited for a batch to be made. worker: the number of the one that alone had something to
-- do (the others had made all that they had been asked for, or had read their parts of a stream); -1: several had.
-- reading: how many had not read their parts; all, where there is no stream. Those with worker = -1 while all read are
-- left out.
CREATE TABLE fetch_awaited (
  loader INTEGER NOT NULL,
  worker INTEGER NOT NULL,
  reading INTEGER NOT NULL,
  count INTEGER NOT NULL,
  wait_ns INTEGER NOT NULL,
  PRIMARY KEY (loader, worker, reading)
) WITHOUT ROWID;

-- One worker process, read from first_ns to last_ns. From at_work_ns on the loader's workers had started: as many batches
-- had come as it has workers (0: it was not read then).
CREATE TABLE worker (
  id INTEGER PRIMARY KEY,
  loader INTEGER NOT NULL,
  pid INTEGER NOT NULL,
  first_ns INTEGER NOT NULL,
  last_ns INTEGER NOT NULL,
  first_cpu_ns INTEGER NOT NULL,
  last_cpu_ns INTEGER NOT NULL,
  readings INTEGER NOT NULL,
  at_work_ns INTEGER NOT NULL,
  at_work_cpu_ns INTEGER NOT NULL
);

-- Readings at work.
CREATE TABLE worker_state (
  worker INTEGER NOT NULL,
  state TEXT NOT NULL,
  readings INTEGER NOT NULL,
  PRIMARY KEY (worker, state)
) WITHOUT ROWID;

-- Looks at workers at work, some five a second (since version 5). call: the number of the system call that the worker's main
-- thread was in; -1: in none, so mostly on a CPU. shared: 1: a futex that other processes may wait in too, such as a
-- multiprocessing.Lock or Semaphore.
CREATE TABLE worker_wait (
  worker INTEGER NOT NULL,
  call INTEGER NOT NULL,
  shared INTEGER NOT NULL,
  looks INTEGER NOT NULL,
  PRIMARY KEY (worker, call, shared)
) WITHOUT ROWID;

-- Samples of the main threads of a loader's workers at work, 40 to 100 a second over all workers (since version 7). stack: 0:
-- it could not be read, or there were too many. state: as a step sample's in `detail`; unknown: it ran, in Python or native
-- code. call: the number of the system call that it waited in; -1: in none, as for a page of memory; 0 where it ran.
CREATE TABLE worker_stack (
  loader INTEGER NOT NULL,
  stack INTEGER NOT NULL,
  state TEXT NOT NULL,
  call INTEGER NOT NULL,
  samples INTEGER NOT NULL,
  PRIMARY KEY (loader, stack, state, call)
) WITHOUT ROWID;

-- Processes that this one started, and those that they started, beside the workers of its DataLoaders: with a name of
-- multiprocessing's, or seen to compute. command: the program, and of Python the script or module; no arguments. cpu_ns:
-- used from first_ns to last_ns, which are of its life within the watch. Older files of this version have neither this
-- table nor the next one.
CREATE TABLE child (
  id INTEGER PRIMARY KEY,
  pid INTEGER NOT NULL,
  first_ns INTEGER NOT NULL,
  last_ns INTEGER NOT NULL,
  cpu_ns INTEGER NOT NULL,
  name TEXT NOT NULL,
  command TEXT NOT NULL
);

-- Samples of the main threads of those that run this Python; columns as in worker_stack.
CREATE TABLE child_stack (
  child INTEGER NOT NULL,
  stack INTEGER NOT NULL,
  state TEXT NOT NULL,
  call INTEGER NOT NULL,
  samples INTEGER NOT NULL,
  PRIMARY KEY (child, stack, state, call)
) WITHOUT ROWID;

CREATE TABLE thread (
  id INTEGER PRIMARY KEY,
  native_tid INTEGER NOT NULL,
  name TEXT NOT NULL,
  role TEXT NOT NULL,
  gil_wait_ns INTEGER NOT NULL,
  gil_waits INTEGER NOT NULL
);

CREATE TABLE object (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, description TEXT NOT NULL);
CREATE TABLE site (id INTEGER PRIMARY KEY, file TEXT NOT NULL, function TEXT NOT NULL, line INTEGER NOT NULL);
CREATE TABLE stack (id INTEGER PRIMARY KEY, parent INTEGER NOT NULL, site INTEGER NOT NULL);

-- Once a second; in long runs every second, fourth ... reading is kept. Counters are "so far".
CREATE TABLE host (
  at_ns INTEGER PRIMARY KEY,
  process_cpu_ns INTEGER NOT NULL,
  machine_busy_ns INTEGER NOT NULL,
  machine_idle_ns INTEGER NOT NULL,
  throttled_ns INTEGER NOT NULL,
  rss_bytes INTEGER NOT NULL,
  threads INTEGER NOT NULL,
  runnable INTEGER NOT NULL,
  -- since version 3; -1: not known
  faults INTEGER NOT NULL,  -- of the step thread: minor page faults
  system_ns INTEGER NOT NULL,  -- of the step thread: CPU time in the kernel
  returned_bytes INTEGER NOT NULL  -- no counter: the most that private memory shrank by in the second before
);

-- What the machine did so far, at the readings of host; since version 8. No row: as at the reading before.
CREATE TABLE counter (id INTEGER PRIMARY KEY, name TEXT NOT NULL);  -- "disk_read_bytes:sda": probe/machine.h has all
CREATE TABLE machine (
  counter INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  so_far INTEGER NOT NULL,
  PRIMARY KEY (counter, at_ns)
) WITHOUT ROWID;

CREATE TABLE tier (probe TEXT PRIMARY KEY, tier TEXT NOT NULL, why TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE overhead (place TEXT PRIMARY KEY, ns INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE dropped (what TEXT PRIMARY KEY, count INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT NOT NULL, count INTEGER NOT NULL);

-- How long steps took, all of them: bins of 0.8 to 1.6 % width, [lower_ns, upper_ns).
CREATE TABLE wall_histogram (
  warm_up INTEGER NOT NULL,
  lower_ns INTEGER NOT NULL,
  upper_ns INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  wall_ns INTEGER NOT NULL,
  PRIMARY KEY (warm_up, lower_ns)
) WITHOUT ROWID;

-- In how many steps a cause took that many whole percent of the step (1 to 100).
CREATE TABLE cause_share (
  cause TEXT NOT NULL,
  percent INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  PRIMARY KEY (cause, percent)
) WITHOUT ROWID;

-- A device that ran work of this process (since version 2; so with all tables below up to call).
CREATE TABLE device (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  description TEXT NOT NULL,
  lead_ns_median INTEGER NOT NULL  -- from the end of a kernel's launch call to its start; 0: not known
);

-- What a device did in the steps of a row of `step`, in the step's own wall-clock window; or-ed and summed like it. Where a
-- device has no row, it was not in use yet.
CREATE TABLE device_step (
  first_step INTEGER NOT NULL,
  device INTEGER NOT NULL,
  wall_ns INTEGER NOT NULL,  -- busy_ns, and idle by cause, sum to it; less than the step's where it was not in use yet, or not traced
  busy_ns INTEGER NOT NULL,  -- a kernel, copy or memset ran
  kernels INTEGER NOT NULL,
  kernel_ns INTEGER NOT NULL,  -- a kernel ran
  launches INTEGER NOT NULL,
  copies INTEGER NOT NULL,
  copy_ns INTEGER NOT NULL,
  exposed_copy_ns INTEGER NOT NULL,  -- a copy ran, and no kernel
  collective_ns INTEGER NOT NULL,
  exposed_collective_ns INTEGER NOT NULL,  -- a collective ran, and no other kernel
  tiny_kernels INTEGER NOT NULL,
  starved_gaps INTEGER NOT NULL,  -- idle until work was launched
  between_ns INTEGER NOT NULL,  -- idle for less than 5 us between two kernels that were both launched: part of idle_launch_ns
  first_kernels INTEGER NOT NULL,  -- steps in which a kernel started
  first_kernel_ns INTEGER NOT NULL,  -- from their start to the first kernel's, summed
  queue_depth INTEGER NOT NULL,  -- launched but not yet running at the ends of the steps, summed
  incomplete INTEGER NOT NULL,  -- steps of which records were lost
  untraced INTEGER NOT NULL,  -- steps in which its work was not traced: all the other columns are of the others only
  untraced_ns INTEGER NOT NULL,  -- their wall time
  idle_data_wait_ns INTEGER NOT NULL, idle_h2d_copy_ns INTEGER NOT NULL, idle_gpu_wait_ns INTEGER NOT NULL,
  idle_launch_ns INTEGER NOT NULL, idle_cuda_alloc_ns INTEGER NOT NULL, idle_module_load_ns INTEGER NOT NULL,
  idle_collective_ns INTEGER NOT NULL, idle_gil_wait_ns INTEGER NOT NULL, idle_stop_the_world_ns INTEGER NOT NULL,
  idle_object_lock_ns INTEGER NOT NULL, idle_gc_ns INTEGER NOT NULL,
  idle_checkpoint_ns INTEGER NOT NULL, idle_validation_ns INTEGER NOT NULL, idle_logging_ns INTEGER NOT NULL,
  idle_descheduled_ns INTEGER NOT NULL, idle_throttled_ns INTEGER NOT NULL, idle_blocked_io_ns INTEGER NOT NULL,
  idle_python_ns INTEGER NOT NULL, idle_compute_ns INTEGER NOT NULL, idle_unknown_ns INTEGER NOT NULL,
  PRIMARY KEY (first_step, device)
) WITHOUT ROWID;

-- Kernels by name, the costliest; folded > 0: the sum of that many others.
CREATE TABLE device_kernel (
  device INTEGER NOT NULL,
  position INTEGER NOT NULL,
  name TEXT NOT NULL,
  kind TEXT NOT NULL,
  eligible INTEGER NOT NULL,
  count INTEGER NOT NULL,
  ns INTEGER NOT NULL,
  max_ns INTEGER NOT NULL,
  tiny INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  folded INTEGER NOT NULL,
  PRIMARY KEY (device, position)
) WITHOUT ROWID;

CREATE TABLE device_copy (
  device INTEGER NOT NULL,
  direction TEXT NOT NULL,
  src TEXT NOT NULL,
  dst TEXT NOT NULL,
  count INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  ns INTEGER NOT NULL,
  exposed_ns INTEGER NOT NULL,
  small INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  PRIMARY KEY (device, direction, src, dst)
) WITHOUT ROWID;

-- The timeline of each device in a kept step, without holes.
CREATE TABLE device_segment (
  step INTEGER NOT NULL,
  device INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  what TEXT NOT NULL,
  cause TEXT NOT NULL,  -- of what is idle; else empty
  name TEXT NOT NULL,
  PRIMARY KEY (step, device, seq)
) WITHOUT ROWID;

-- The host's calls into the device's runtime, within steps, by thread.
CREATE TABLE call (
  thread INTEGER NOT NULL,
  call TEXT NOT NULL,
  count INTEGER NOT NULL,
  failed INTEGER NOT NULL,
  ns INTEGER NOT NULL,
  max_ns INTEGER NOT NULL,
  steps INTEGER NOT NULL,
  PRIMARY KEY (thread, call)
) WITHOUT ROWID;

-- Views, for people with a SQL shell.

CREATE VIEW steps_ms AS
SELECT first_step AS step, steps, ROUND(wall_ns / 1e6 / steps, 3) AS wall_ms,
  ROUND(data_wait_ns / 1e6 / steps, 3) AS data_wait, ROUND(h2d_copy_ns / 1e6 / steps, 3) AS h2d_copy,
  ROUND(gpu_wait_ns / 1e6 / steps, 3) AS gpu_wait, ROUND(launch_ns / 1e6 / steps, 3) AS launch,
  ROUND(cuda_alloc_ns / 1e6 / steps, 3) AS cuda_alloc, ROUND(module_load_ns / 1e6 / steps, 3) AS module_load,
  ROUND(collective_ns / 1e6 / steps, 3) AS collective, ROUND(gil_wait_ns / 1e6 / steps, 3) AS gil_wait,
  ROUND(stop_the_world_ns / 1e6 / steps, 3) AS stop_the_world, ROUND(object_lock_ns / 1e6 / steps, 3) AS object_lock,
  ROUND(gc_ns / 1e6 / steps, 3) AS gc, ROUND(checkpoint_ns / 1e6 / steps, 3) AS checkpoint,
  ROUND(validation_ns / 1e6 / steps, 3) AS validation, ROUND(logging_ns / 1e6 / steps, 3) AS logging,
  ROUND(descheduled_ns / 1e6 / steps, 3) AS descheduled, ROUND(throttled_ns / 1e6 / steps, 3) AS throttled,
  ROUND(blocked_io_ns / 1e6 / steps, 3) AS blocked_io, ROUND(python_ns / 1e6 / steps, 3) AS python,
  ROUND(compute_ns / 1e6 / steps, 3) AS compute, ROUND(unknown_ns / 1e6 / steps, 3) AS unknown,
  TRIM(IIF(flags & 1, 'data_starved ', '') || IIF(flags & 2, 'gil_contended ', '') || IIF(flags & 4, 'host_stalled ', '')
    || IIF(flags & 8, 'incomplete ', '') || IIF(flags & 16, 'warm_up ', '') || IIF(flags & 32, 'has_validation ', '')
    || IIF(flags & 64, 'has_checkpoint ', '') || IIF(flags & 128, 'has_loader_start ', '')) AS flags
FROM step ORDER BY first_step;

CREATE VIEW causes AS
WITH total(steps, ns) AS (SELECT SUM(steps), SUM(wall_ns) FROM step), each_cause AS (
  SELECT 'data_wait' AS cause, SUM(data_wait_ns) AS ns FROM step
  UNION ALL SELECT 'h2d_copy' AS cause, SUM(h2d_copy_ns) AS ns FROM step
  UNION ALL SELECT 'gpu_wait' AS cause, SUM(gpu_wait_ns) AS ns FROM step
  UNION ALL SELECT 'launch' AS cause, SUM(launch_ns) AS ns FROM step
  UNION ALL SELECT 'cuda_alloc' AS cause, SUM(cuda_alloc_ns) AS ns FROM step
  UNION ALL SELECT 'module_load' AS cause, SUM(module_load_ns) AS ns FROM step
  UNION ALL SELECT 'collective' AS cause, SUM(collective_ns) AS ns FROM step
  UNION ALL SELECT 'gil_wait' AS cause, SUM(gil_wait_ns) AS ns FROM step
  UNION ALL SELECT 'stop_the_world' AS cause, SUM(stop_the_world_ns) AS ns FROM step
  UNION ALL SELECT 'object_lock' AS cause, SUM(object_lock_ns) AS ns FROM step
  UNION ALL SELECT 'gc' AS cause, SUM(gc_ns) AS ns FROM step
  UNION ALL SELECT 'checkpoint' AS cause, SUM(checkpoint_ns) AS ns FROM step
  UNION ALL SELECT 'validation' AS cause, SUM(validation_ns) AS ns FROM step
  UNION ALL SELECT 'logging' AS cause, SUM(logging_ns) AS ns FROM step
  UNION ALL SELECT 'descheduled' AS cause, SUM(descheduled_ns) AS ns FROM step
  UNION ALL SELECT 'throttled' AS cause, SUM(throttled_ns) AS ns FROM step
  UNION ALL SELECT 'blocked_io' AS cause, SUM(blocked_io_ns) AS ns FROM step
  UNION ALL SELECT 'python' AS cause, SUM(python_ns) AS ns FROM step
  UNION ALL SELECT 'compute' AS cause, SUM(compute_ns) AS ns FROM step
  UNION ALL SELECT 'unknown' AS cause, SUM(unknown_ns) AS ns FROM step
)
SELECT cause, ROUND(each_cause.ns / 1e6 / steps, 3) AS ms_per_step, ROUND(100.0 * each_cause.ns / total.ns, 2) AS percent,
  ROUND(each_cause.ns / 1e9, 3) AS seconds
FROM each_cause, total WHERE each_cause.ns <> 0 ORDER BY each_cause.ns DESC;

CREATE VIEW phases AS
WITH total(steps, ns) AS (SELECT SUM(steps), SUM(wall_ns) FROM step), each_phase AS (
  SELECT 'fetch' AS phase, SUM(phase_fetch_ns) AS ns FROM step
  UNION ALL SELECT 'transfer' AS phase, SUM(phase_transfer_ns) AS ns FROM step
  UNION ALL SELECT 'forward' AS phase, SUM(phase_forward_ns) AS ns FROM step
  UNION ALL SELECT 'backward' AS phase, SUM(phase_backward_ns) AS ns FROM step
  UNION ALL SELECT 'optimizer' AS phase, SUM(phase_optimizer_ns) AS ns FROM step
  UNION ALL SELECT 'checkpoint' AS phase, SUM(phase_checkpoint_ns) AS ns FROM step
  UNION ALL SELECT 'validation' AS phase, SUM(phase_validation_ns) AS ns FROM step
  UNION ALL SELECT 'logging' AS phase, SUM(phase_logging_ns) AS ns FROM step
  UNION ALL SELECT 'other' AS phase, SUM(phase_other_ns) AS ns FROM step
)
SELECT phase, ROUND(each_phase.ns / 1e6 / steps, 3) AS ms_per_step, ROUND(100.0 * each_phase.ns / total.ns, 2) AS percent,
  ROUND(each_phase.ns / 1e9, 3) AS seconds
FROM each_phase, total WHERE each_phase.ns <> 0 ORDER BY each_phase.ns DESC;

CREATE VIEW mechanisms AS
SELECT phase, mechanism, ROUND(SUM(ns) / 1e6 / (SELECT SUM(steps) FROM step), 3) AS ms_per_step,
  ROUND(100.0 * SUM(ns) / (SELECT SUM(wall_ns) FROM step), 2) AS percent
FROM phase_mechanism GROUP BY phase, mechanism ORDER BY SUM(ns) DESC;

CREATE VIEW wall_quantiles AS
WITH running AS (
  SELECT wall_ns, steps, SUM(steps) OVER (ORDER BY lower_ns) AS seen, SUM(steps) OVER () AS total
  FROM wall_histogram WHERE warm_up = 0)
SELECT percentile, (SELECT ROUND(1.0 * wall_ns / steps / 1e6, 3) FROM running WHERE seen >= total * percentile / 100.0
                    ORDER BY seen LIMIT 1) AS ms
FROM (SELECT 1 AS percentile UNION ALL SELECT 5 UNION ALL SELECT 25 UNION ALL SELECT 50 UNION ALL SELECT 75 UNION ALL SELECT 90
      UNION ALL SELECT 95 UNION ALL SELECT 99 UNION ALL SELECT 100);

CREATE VIEW worst_steps AS
SELECT first_step AS step, why, ROUND(wall_ns / 1e6, 3) AS wall_ms, ROUND(data_wait_ns / 1e6, 3) AS data_wait,
  ROUND(gil_wait_ns / 1e6, 3) AS gil_wait, ROUND(blocked_io_ns / 1e6, 3) AS blocked_io, ROUND(python_ns / 1e6, 3) AS python,
  ROUND(compute_ns / 1e6, 3) AS compute, (SELECT COUNT(*) FROM segment WHERE segment.step = first_step) AS segments
FROM kept_step ORDER BY wall_ns DESC;

-- Each frame of each stack; depth 0 is the innermost.
CREATE VIEW frames AS
WITH RECURSIVE walk(stack, depth, node) AS (
  SELECT id, 0, id FROM stack
  UNION ALL SELECT walk.stack, depth + 1, parent FROM walk JOIN stack ON stack.id = node WHERE parent <> 0 AND depth < 1000)
SELECT walk.stack, depth, file, function, line
FROM walk JOIN stack ON stack.id = node JOIN site ON site.id = stack.site;

-- Who held the GIL while the step thread waited for it, and in which line.
CREATE VIEW gil_holders AS
SELECT COALESCE(NULLIF(thread.name, ''), 'thread ' || detail.thread) AS holder, function, file, line,
  ROUND(SUM(ns) / 1e6, 3) AS waited_ms, SUM(detail.count) AS waits, SUM(detail.steps) AS steps
FROM detail LEFT JOIN thread ON thread.id = detail.thread LEFT JOIN stack ON stack.id = detail.stack
  LEFT JOIN site ON site.id = stack.site
WHERE kind = 'gil_wait' AND section >= 0 GROUP BY detail.thread, site.id ORDER BY SUM(ns) DESC;

-- Who held the GIL, whether anybody waited or not (sampled).
CREATE VIEW gil_holds AS
SELECT COALESCE(NULLIF(thread.name, ''), 'thread ' || detail.thread) AS holder, function, file, line,
  ROUND(SUM(ns) / 1e6, 3) AS held_ms, SUM(detail.count) AS samples
FROM detail LEFT JOIN thread ON thread.id = detail.thread LEFT JOIN stack ON stack.id = detail.stack
  LEFT JOIN site ON site.id = stack.site
WHERE kind = 'hold' AND section >= 0 GROUP BY detail.thread, site.id ORDER BY SUM(ns) DESC;

-- Where the step thread was (sampled): on CPU, or blocked in which system call.
CREATE VIEW step_lines AS
SELECT phase, state, IIF(state = 'blocked', code & 65535, NULL) AS system_call, function, file, line,
  ROUND(SUM(ns) / 1e6, 3) AS ms, SUM(detail.count) AS samples, SUM(detail.steps) AS steps
FROM detail LEFT JOIN stack ON stack.id = detail.stack LEFT JOIN site ON site.id = stack.site
WHERE kind = 'sample' AND section >= 0 GROUP BY phase, state, code & 65535, site.id ORDER BY SUM(ns) DESC;

CREATE VIEW loader_waits AS
SELECT fetch.loader, count AS fetches, ROUND(1.0 * wall_ns / NULLIF(count, 0) / 1e6, 3) AS mean_ms, ROUND(max_ns / 1e6, 3) AS max_ms,
  ROUND(wall_ns / 1e9, 3) AS seconds, ROUND(100.0 * cpu_ns / NULLIF(wall_ns, 0), 1) AS cpu_percent,
  (SELECT ROUND(100.0 * SUM(ready.count) / NULLIF(fetch.count, 0), 1) FROM fetch_ready AS ready
   WHERE ready.loader = fetch.loader AND ready.ready = 0) AS none_ready_percent,
  first_count AS starts, ROUND(first_wall_ns / 1e9, 3) AS starts_seconds, description
FROM fetch LEFT JOIN object ON object.id = fetch.loader ORDER BY wall_ns DESC;

CREATE VIEW loader_workers AS
SELECT loader, pid, ROUND((last_ns - NULLIF(at_work_ns, 0)) / 1e9, 1) AS seconds,
  ROUND(100.0 * (last_cpu_ns - at_work_cpu_ns) / NULLIF(last_ns - NULLIF(at_work_ns, 0), 0), 1) AS cpu_percent,
  (SELECT GROUP_CONCAT(state || ':' || worker_state.readings, ' ') FROM worker_state WHERE worker = worker.id) AS states
FROM worker ORDER BY loader, pid;

-- What the workers of each loader do, by innermost line; `frames` has the callers.
CREATE VIEW worker_lines AS
SELECT loader, state, IIF(state = 'blocked', call, NULL) AS system_call, function, file, line, SUM(samples) AS samples,
  ROUND(100.0 * SUM(samples) / (SELECT SUM(samples) FROM worker_stack AS whole WHERE whole.loader = worker_stack.loader), 1) AS percent
FROM worker_stack LEFT JOIN stack ON stack.id = worker_stack.stack LEFT JOIN site ON site.id = stack.site
GROUP BY loader, state, system_call, site.id ORDER BY SUM(samples) DESC;

-- The processes that the run started beside workers, and what those of Python do, by innermost line.
CREATE VIEW child_processes AS
SELECT pid, name, command, ROUND((last_ns - first_ns) / 1e9, 1) AS seconds,
  ROUND(1.0 * cpu_ns / NULLIF(last_ns - first_ns, 0), 2) AS cpus FROM child ORDER BY cpu_ns DESC;

CREATE VIEW child_lines AS
SELECT child.pid, child.name, state, IIF(state = 'blocked', call, NULL) AS system_call, function, file, line, SUM(samples) AS samples
FROM child_stack JOIN child ON child.id = child_stack.child
LEFT JOIN stack ON stack.id = child_stack.stack LEFT JOIN site ON site.id = stack.site
GROUP BY child.id, state, system_call, site.id ORDER BY SUM(samples) DESC;

CREATE VIEW longest_spans AS
SELECT kind, step, ROUND((end_ns - start_ns) / 1e6, 3) AS ms, ROUND(cpu_ns / 1e6, 3) AS cpu_ms, object, value,
  COALESCE(NULLIF(thread.name, ''), 'thread ' || span.thread) AS thread
FROM span LEFT JOIN thread ON thread.id = span.thread ORDER BY end_ns - start_ns DESC;

-- How each device spent the steps in which it was traced.
CREATE VIEW device_use AS
SELECT device.id AS device, name, (SELECT SUM(steps) FROM step) - SUM(untraced) AS steps_traced, ROUND(100.0 * SUM(busy_ns) / SUM(wall_ns), 1) AS busy_percent,
  ROUND(SUM(wall_ns - busy_ns) / 1e6 / ((SELECT SUM(steps) FROM step) - SUM(untraced)), 3) AS idle_ms_per_step, SUM(kernels) AS kernels,
  SUM(tiny_kernels) AS tiny_kernels, ROUND(SUM(exposed_copy_ns) / 1e6 / ((SELECT SUM(steps) FROM step) - SUM(untraced)), 3) AS exposed_copy_ms_per_step,
  ROUND(SUM(exposed_collective_ns) / 1e6 / ((SELECT SUM(steps) FROM step) - SUM(untraced)), 3) AS exposed_collective_ms_per_step
FROM device_step JOIN device ON device.id = device_step.device GROUP BY device.id ORDER BY device.id;

-- Why each device was idle, in the steps in which it was traced.
CREATE VIEW device_idle AS
WITH each_cause AS (
  SELECT device, 'data_wait' AS cause, SUM(idle_data_wait_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'h2d_copy' AS cause, SUM(idle_h2d_copy_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'gpu_wait' AS cause, SUM(idle_gpu_wait_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'launch' AS cause, SUM(idle_launch_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'cuda_alloc' AS cause, SUM(idle_cuda_alloc_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'module_load' AS cause, SUM(idle_module_load_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'collective' AS cause, SUM(idle_collective_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'gil_wait' AS cause, SUM(idle_gil_wait_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'stop_the_world' AS cause, SUM(idle_stop_the_world_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'object_lock' AS cause, SUM(idle_object_lock_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'gc' AS cause, SUM(idle_gc_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'checkpoint' AS cause, SUM(idle_checkpoint_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'validation' AS cause, SUM(idle_validation_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'logging' AS cause, SUM(idle_logging_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'descheduled' AS cause, SUM(idle_descheduled_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'throttled' AS cause, SUM(idle_throttled_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'blocked_io' AS cause, SUM(idle_blocked_io_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'python' AS cause, SUM(idle_python_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'compute' AS cause, SUM(idle_compute_ns) AS ns FROM device_step GROUP BY device
  UNION ALL SELECT device, 'unknown' AS cause, SUM(idle_unknown_ns) AS ns FROM device_step GROUP BY device
)
SELECT device, cause, ROUND(ns / 1e6 / ((SELECT SUM(steps) FROM step)
    - (SELECT SUM(untraced) FROM device_step AS all_steps WHERE all_steps.device = each_cause.device)), 3) AS ms_per_step,
  ROUND(100.0 * ns / (SELECT SUM(wall_ns - busy_ns) FROM device_step AS all_steps WHERE all_steps.device = each_cause.device), 2) AS percent
FROM each_cause WHERE ns <> 0 ORDER BY device, ns DESC;
