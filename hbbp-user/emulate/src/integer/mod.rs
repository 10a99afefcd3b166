//! Integer code: the instructions of general-purpose registers. Results and flags are those of SDM vol. 2; flags that it leaves
//! undefined are unknown.

mod arithmetic;
mod bits;
mod branches;
mod logic;
mod moves;
mod multiply;
mod shifts;
mod stack;
mod strings;
