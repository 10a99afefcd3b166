//! What each module may hold of text and of names: the same largest share for all keeps their sum within the bound, so one
//! that makes up code or names loses its own and not those of others.

use super::budget::{MAX_NAMES, MAX_PATHS, MAX_SYMBOLS, MAX_TEXT, MAX_TEXTS, count};
use super::{Loss, Module, ModuleIdx, ModuleKind, Snapshot, Symbol, Text};

impl Snapshot {
    /// Modules lose text beyond their share, all versions of a range together.
    pub(super) fn fit_text(&mut self) {
        let len = |text: &Text| text.bytes.len();
        let shares = self.text_shares();
        let mut share = Share { len: 0, n: 0 };
        let mut kept = Vec::with_capacity(self.text.len());
        let mut n_left_out = 0;
        let mut module = None;
        for versions in self
            .text
            .chunk_by(|a, b| (a.module, a.start) == (b.module, b.start))
        {
            let of = versions.first().map(|text| text.module);
            if module != of {
                module = of;
                share = of.map_or(share, |of| shares[self.precedence(of)]);
            }
            let is_kept = share.take(versions.iter().map(len).sum(), versions.len());
            kept.extend(versions.iter().map(|_| is_kept));
            n_left_out += if is_kept { 0 } else { count(versions.len()) };
        }
        let mut kept = kept.into_iter();
        self.text.retain(|_| kept.next().unwrap_or(true));
        self.losses.add(Loss::RegionsLeftOut, n_left_out);
    }

    /// What a module of each precedence may hold of text: the next ones share what is left.
    fn text_shares(&self) -> [Share; 3] {
        let mut left = Share {
            len: MAX_TEXT,
            n: MAX_TEXTS,
        };
        [0, 1, 2].map(|precedence| {
            let modules = || {
                let modules = self.text.chunk_by(|a, b| a.module == b.module);
                modules.filter(|texts| {
                    let first = texts.first().map(|text| self.precedence(text.module));
                    first == Some(precedence)
                })
            };
            let lens = || modules().map(|texts| texts.iter().map(|text| text.bytes.len()).sum());
            let share = Share {
                len: even_share(lens(), left.len),
                n: even_share(modules().map(<[Text]>::len), left.n),
            };
            left.len -= lens().map(|len: usize| len.min(share.len)).sum::<usize>();
            left.n -= modules().map(|texts| texts.len().min(share.n)).sum::<usize>();
            share
        })
    }

    /// Whose text is kept first: that of the kernel, which every process runs; files; what was written at run time.
    fn precedence(&self, module: ModuleIdx) -> usize {
        match self.modules.get(module.0 as usize).map(|module| module.kind) {
            Some(ModuleKind::Kernel | ModuleKind::KernelModule) => 0,
            Some(ModuleKind::Elf64 | ModuleKind::Elf32 | ModuleKind::Vdso) => 1,
            Some(ModuleKind::Bpf | ModuleKind::Trampoline | ModuleKind::Anonymous) | None => 2,
        }
    }

    /// Modules lose the names of functions beyond their share, and paths their first bytes.
    pub(super) fn fit_names(&mut self) {
        let len = |symbol: &Symbol| symbol.name.len();
        let names = |module: &Module| module.symbols.iter().map(len).sum();
        let share = Share {
            len: even_share(self.modules.iter().map(names), MAX_NAMES),
            n: even_share(
                self.modules.iter().map(|module| module.symbols.len()),
                MAX_SYMBOLS,
            ),
        };
        let longest = even_share(self.modules.iter().map(|module| module.name.len()), MAX_PATHS);
        let mut n_left_out = 0;
        for module in &mut self.modules {
            let mut share = share;
            let n = module.symbols.len();
            module.symbols.retain(|symbol| share.take(len(symbol), 1));
            n_left_out += count(n - module.symbols.len());
            if longest < module.name.len() {
                module.name = end_of(&module.name, longest);
                n_left_out += 1;
            }
        }
        self.losses.add(Loss::NamesLeftOut, n_left_out);
    }
}

/// What one module may still hold.
#[derive(Clone, Copy)]
struct Share {
    len: usize,
    n: usize,
}

impl Share {
    /// Takes `len` bytes and `n` entries, or nothing where that is too much.
    const fn take(&mut self, len: usize, n: usize) -> bool {
        let fits = len <= self.len && n <= self.n;
        if fits {
            self.len -= len;
            self.n -= n;
        }
        fits
    }
}

/// The largest bound for each for which all of them together, each no larger than the bound, are no more than `most`.
fn even_share(sizes: impl Iterator<Item = usize>, most: usize) -> usize {
    let mut sizes: Vec<usize> = sizes.collect();
    sizes.sort_unstable();
    let mut left = most;
    for (size, n_left) in sizes.iter().zip((1..=sizes.len()).rev()) {
        if left / n_left < *size {
            return left / n_left;
        }
        left -= size;
    }
    usize::MAX
}

/// The last bytes of a path, whole characters, after two dots.
fn end_of(path: &str, len: usize) -> String {
    const DOTS: &str = "..";
    let start = path.len() - len.saturating_sub(DOTS.len()).min(path.len());
    let start = path.ceil_char_boundary(start);
    format!("{DOTS}{}", path.get(start..).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_share_takes_from_the_largest_alone() {
        let share = |sizes: &[usize], most| even_share(sizes.iter().copied(), most);
        assert_eq!(share(&[1, 2, 3], 6), usize::MAX);
        assert_eq!(share(&[1, 2, 300], 10), 7);
        assert_eq!(share(&[100, 2, 300], 12), 5);
        assert_eq!(share(&[], 0), usize::MAX);
    }

    #[test]
    fn end_of_a_path_is_whole_characters() {
        assert_eq!(end_of("/usr/bin/prog", 8), "..n/prog");
        assert_eq!(end_of("/a/äöü", 6), "..öü");
        assert_eq!(end_of("/a/b", 1), "..");
    }
}
