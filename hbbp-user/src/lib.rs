//! hbbp-sys: from perf events to an instruction mix of kernel and user code.
//!
//! ```text
//! perf events -> eBPF maps -> drain -> resolve -> SNAPSHOT -> locate -> blocks -> estimate -> mix -> report
//!             (touches the kernel and the disk: may fail)    |     (pure: same snapshot, same answer)
//! recordings of other tools -> import -> resolve ------------+         (one function) estimate -> annotate -> report
//! runs of several hosts and times -> merge -> profile -------+         (two profiles) mix -> diff -> report
//!                                                                       (for other tools) estimate -> export
//! ```
//!
//! # Glossary
//!
//! | term | meaning |
//! |---|---|
//! | retired instruction | an instruction whose result became architectural state; the unit of all estimates |
//! | instruction mix | executions by mnemonic, or by another dimension of the instructions |
//! | ring | privilege level: ring 0 is the kernel, ring 3 is user code |
//! | event | what a hardware counter or a clock counts: retired instructions, taken branches, nanoseconds |
//! | period | events from sample to sample, a prime number that varies a little between drains |
//! | sample | what the kernel delivers when a counter overflows: an address, or a branch stack |
//! | eventing IP | address of the instruction that made the counter overflow (Intel SDM) |
//! | skid | distance from the eventing instruction to the address that is reported |
//! | precise event | a sample whose eventing IP the hardware recorded itself (PEBS, IBS) |
//! | LBR, branch stack | the last taken branches that the processor recorded, up to 32 pairs of source and target |
//! | taken branch | a change of control flow: jumps, calls and returns are near; system calls and interrupts are far |
//! | stream | the code from the target of one recorded branch to the source of the next |
//! | loop | blocks with a back edge to a header that all paths into them pass: a natural loop |
//! | iteration | one round of a loop; an invocation enters it from outside, and the trip count is iterations by invocations |
//! | call chain | the address that was interrupted and the return addresses after it: who called, innermost first |
//! | inclusive time | the time of code and of all that it called; of code that called itself, once |
//! | CPI | core cycles for each retired instruction; its inverse is IPC |
//! | basic block | instructions that run one after the other: one entry at its start, one exit at its end |
//! | leader | the first instruction of a basic block |
//! | EBS | event-based sampling: executions of blocks from eventing IPs |
//! | HBBP | hybrid basic block profiling: chooses between EBS and LBR for each block |
//! | rule | the classification tree of HBBP, as a file |
//! | LBR bias | a branch is recorded as the oldest entry of stacks out of proportion to its executions |
//! | class | instructions that a processor counts exactly when they retire: loads, calls, NOPs, .. |
//! | standard error | the error of an estimate by chance alone, from the number of samples |
//! | residual | estimated minus counted events, over counted events |
//! | completeness | samples that reached the tool, over samples that were expected |
//! | drain | reading what was counted in the kernel since the last drain |
//! | interval | the time between two drains, or between a patch of kernel text and a drain |
//! | slice | a span of N retired instructions of a thread or of all that is measured: SimPoint's interval |
//! | basic block vector | for each block the instructions that it executed in a slice |
//! | simulation point | the slice that represents a phase of a run (SimPoint) |
//! | process image | a process from one exec to the next |
//! | module | what has text: the kernel, a kernel module, a BPF program, a mapped file |
//! | text version | bytes of a text range between two patches |
//! | loss | samples or streams that are in no row, by cause; each has a counter and a sentence |
//!
//! # Crates, in the order of the flow
//!
//! Each may use only those above it, but for what reads the kernel, the disk and recordings: these use the data alone, and
//! only the program uses them. The README of each says what it does and what it does not do.
//!
//! | crates and modules | what they do |
//! |---|---|
//! | **[`hbbp_model`]** | the data, and the files that hold it |
//! | [`addr`](hbbp_model::addr), [`record`](hbbp_model::record) | addresses and rings; records of processes, mappings and text |
//! | [`advice`](hbbp_model::advice) | what the user may do about a loss or a refusal; [`crate::advice`] names the options |
//! | [`kinds`](hbbp_model::kinds) | kinds of instructions by the time they take |
//! | [`streams`](hbbp_model::streams), [`slices`](hbbp_model::slices) | turns branch stacks into counted streams; what was counted in each slice of a run, in few bytes |
//! | [`snapshot`](hbbp_model::snapshot) | the profile: counts, losses, text, mappings, symbols, facts of the run; the file format |
//! | [`profile`](hbbp_model::profile), [`segments`](hbbp_model::segments) | snapshots in files; a folder of profiles, one for each interval of a measurement that never ends |
//! | [`printable`](hbbp_model::printable), [`names`](hbbp_model::names) | makes names that others chose safe to print; demangles them |
//! | **[`hbbp_collect`]** | opens perf events, loads the programs of `hbbp-ebpf`, drains counts and streams |
//! | **[`hbbp_import`]** | reads recordings of other tools: perf.data, text of perf script, pre-aggregated text |
//! | **[`hbbp_elf`]** | parses files that others wrote, in processes without rights |
//! | **[`hbbp_resolve`]** | finds the text, the symbols and the mappings of what was sampled |
//! | **[`hbbp_emulate`]** | executes user code from a sample's registers and memory |
//! | **[`hbbp_bursts`]** | follows live processes by it; of [`hbbp_resolve`], it reads page maps |
//! | **[`hbbp_code`]** | [`locate`](hbbp_code::locate) assigns counts to text; [`blocks`](hbbp_code::blocks) decodes it and splits it into basic blocks |
//! | **[`hbbp_estimate`]** | executions of each block with their standard errors |
//! | **[`hbbp_analysis`]** | what the executions say |
//! | [`time`](hbbp_analysis::time) | where cycles were sampled in addition to executions: time by instruction |
//! | [`mix`](hbbp_analysis::mix), [`eval`](hbbp_analysis::eval) | sums by dimension and taxonomy, filters, views, requirements; errors against exact counts |
//! | [`callers`](hbbp_analysis::callers) | call chains of samples of time: the call sites that their time is charged to |
//! | [`loops`](hbbp_analysis::loops) | natural loops of the executed code: iterations, invocations, trip counts |
//! | [`vectors`](hbbp_analysis::vectors) | basic block vectors of slices, and the simulation points that represent them |
//! | [`annotate`](hbbp_analysis::annotate), [`diff`](hbbp_analysis::diff) | the code of a function with its counts; what changed from one profile to another |
//! | **[`hbbp_output`]** | [`report`](hbbp_output::report) as text, JSON, CSV and an HTML page; [`export`](hbbp_output::export) in the formats of other tools |
//! | **[`hbbp_table`]** | the table of a profile for databases: Parquet and Arrow files |
//! | **this program** | [`cmd`] wires the stages of each command; [`cli`] is the command line |
//!
//! # Invariants that must never break
//!
//! 1. The report is a pure function of the snapshot: what follows [`snapshot`](hbbp_model::snapshot) reads no disk, process or clock.
//! 2. Every sample is accounted for: expected = skipped + idle + refused + unresolved + in the mix, exactly.
//! 3. Every refusal and loss has a counter and a sentence ([`hbbp_model::snapshot::loss`]); nothing is dropped silently.
//! 4. Time-weighted samples are never called executions.
//! 5. Text is the executed bytes. A static image or a mapped file is used only where the report says so.
//! 6. Input of other users (memory, files, recordings) is hostile: no panic, no unbounded memory or time.
//! 7. A collection that has begun ends with a report: resolution is given up by stated steps, the recording never.
//! 8. Estimators are tuned on other workloads and hardware profiles than those that they are reported on.
//! 9. `unsafe` is at the rim, each use with its reason; nothing but tests may panic.
//!
//! # Where new things go
//!
//! `.github/CONTRIBUTING.md` answers each in five lines; the first location is
//!
//! | new | first location |
//! |---|---|
//! | refusal | the table of [`hbbp_model::snapshot::loss`] |
//! | dimension | the table of [`hbbp_analysis::mix::Dimension`]; a grouping of instructions is a taxonomy and needs no code |
//! | view | the table of [`hbbp_analysis::mix::View`] |
//! | export | a file in [`export`](hbbp_output::export), as pure lines of a snapshot |
//! | form of a report | [`report`](hbbp_output::report), with its name in an enum of formats |
//! | processor | the table of `hbbp-user/collect/src/uarch.rs`; its quirks in [`streams`](hbbp_model::streams) |
//! | class that processors count | [`hbbp_model::snapshot::InstructionClass`], what belongs to it in [`blocks`](hbbp_code::blocks), its events in `class_events.rs` next to it |

pub mod advice;
pub mod cli;
pub mod cmd;
