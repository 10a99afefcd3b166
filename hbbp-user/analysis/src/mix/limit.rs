//! Limits in percent, as the user writes them after what they are about: `extension=AVX512*>1%`.

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    /// Which figures are beyond it.
    pub side: Side,
    /// 0.01 of 1 %; finite.
    pub value: f64,
}

/// The side of a limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Side {
    /// `>`.
    Above,
    /// `<`.
    Below,
}

impl Limit {
    /// Splits a text at its last `<` or `>` into what the limit is about and the limit, a number with `%`. `None` if the
    /// text has another form.
    pub(crate) fn split(text: &str) -> Option<(&str, Self)> {
        let at = text.rfind(['<', '>'])?;
        let (what, limit) = text.split_at(at);
        let (side, limit) = match limit.strip_prefix('<') {
            Some(limit) => (Side::Below, limit),
            None => (Side::Above, limit.strip_prefix('>')?),
        };
        let percent: f64 = limit.trim().strip_suffix('%')?.trim().parse().ok()?;
        let value = percent / 100.0;
        value.is_finite().then_some((what, Self { side, value }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_percent_on_a_side() {
        let above = |value| Limit {
            side: Side::Above,
            value,
        };
        let below = |value| Limit {
            side: Side::Below,
            value,
        };
        assert_eq!(
            Limit::split("extension=AVX512*>1%"),
            Some(("extension=AVX512*", above(0.01)))
        );
        assert_eq!(Limit::split("f<int>*> +2 % "), Some(("f<int>*", above(0.02))));
        assert_eq!(Limit::split("x:amount < -5 %"), Some(("x:amount ", below(-0.05))));
        for wrong in ["", "x", "x>1", "x>%", "x>y%", "x>NaN%", "x>inf%", "1%"] {
            assert_eq!(Limit::split(wrong), None, "{wrong}");
        }
    }
}
