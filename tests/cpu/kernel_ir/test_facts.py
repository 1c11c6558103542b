"""The facts of a kernel's TTIR as terms, and the numbers that these terms are for the programs of a launch."""

from __future__ import annotations

import pytest

from tests.cpu.kernel_ir.test_ttir import COPY, GIVEN, WHILE, work
from triton_ops.kernel_ir import KernelFacts, UntoldError, term_walk
from triton_ops.kernel_ir.operations import OPERATIONS


def facts(body=""):
    return KernelFacts.of(COPY.replace("BODY", body))


def test_addresses_and_masks_are_terms():
    load, store = facts().accesses
    assert (load.kind, store.kind) == ("load", "store")
    assert load.offset.words == "128·program_id(0) + i"
    assert load.offset is store.offset
    assert load.mask.words == "128·program_id(0) + i < arg2"


def test_a_condition_and_its_opposite_are_one_term_refused():
    terms = facts().terms
    condition = terms.at_least_zero(terms.whole(terms.make("argument", "n")))
    assert terms.both(condition, terms.refuse(condition)) is terms.false
    assert terms.either(condition, terms.refuse(condition)) is terms.true


def test_the_words_of_a_term_whose_parts_are_shared_many_times_over_are_cut_short():
    terms = facts().terms
    one = terms.whole(terms.make("argument", "n"))
    for _ in range(60):  # written out it has 2^60 parts
        one = terms.quotient(terms.add((1, one), (1, terms.quotient(one, terms.number(3)))), terms.number(5))
    assert 1000 < len(one.words) <= 2000


def test_without_data_one_term_stands_for_all_of_it():
    body = """
    %x = arith.mulf %9, %9 : tensor<128xf32>
    %y = arith.addf %x, %9 : tensor<128xf32>
    """
    text = COPY.replace("BODY", body)
    whole, addresses = KernelFacts.of(text), KernelFacts.of(text, data=False)
    assert addresses.terms.count < whole.terms.count
    assert [one.offset.words for one in addresses.accesses] == [one.offset.words for one in whole.accesses]
    assert [one.elements for one in addresses.computations] == [128, 128]


def test_what_a_while_loop_hands_on_is_known_after_it():
    after = """
    %p = tt.addptr %arg0, %w : !tt.ptr<f32>, i32
    %v = tt.load %p : !tt.ptr<f32>
    """
    loop = WHILE.replace("{predicate}", "slt").replace("{step}", "%c128_i32")
    (loaded,) = (one for one in work(loop + after).accesses if one.kind == "load" and one.tile == 1)
    assert loaded.known
    assert loaded.shared[-1] == 1, "every program ends at the same number"


def test_an_address_from_a_number_is_of_no_argument():
    body = """
    %a = arith.extsi %0 : i32 to i64
    %p = tt.int_to_ptr %a : i64 -> !tt.ptr<f32>
    %v = tt.load %p : !tt.ptr<f32>
    """
    (loaded,) = (one for one in work(body).accesses if one.argument < 0)
    assert loaded.known
    assert loaded.shared[-1] == 8, "each of 8 programs has its own"


@pytest.mark.parametrize(("condition", "share"), [("%odd", 0.5), ("%always", 1.0)])
def test_programs_come_to_a_branch_as_its_condition_has_it(condition, share):
    body = f"""
    %c1 = arith.constant 1 : i32
    %c0 = arith.constant 0 : i32
    %bit = arith.andi %0, %c1 : i32
    %odd = arith.cmpi eq, %bit, %c1 : i32
    %always = arith.cmpi sge, %0, %c0 : i32
    scf.if {condition} {{
      %p = tt.addptr %arg0, %0 : !tt.ptr<f32>, i32
      %v = tt.load %p : !tt.ptr<f32>
    }}
    """
    (loaded,) = (one for one in work(body).accesses if one.kind == "load" and one.tile == 1)
    assert loaded.executions == share


def test_an_operation_that_the_table_lacks_costs_only_what_it_makes(monkeypatch):
    whole = work()
    monkeypatch.delitem(OPERATIONS, "tt.make_range")
    lost = work(given=GIVEN)
    assert [one.argument for one in lost.accesses] == [one.argument for one in whole.accesses]
    assert not any(one.known for one in lost.accesses)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("shli %0, %c3", "8·program_id(0)"), ("shli %0, %c0", "program_id(0)"), ("shli %c3, %c3", "24"),
        ("shrsi %0, %c3", "(program_id(0)) // 8"), ("shrui %0, %c0", "program_id(0)"),
        ("divsi %0, %c3", "(program_id(0)) // 3"),
        ("remsi %0, %c3", "(program_id(0)) % 3"), ("andi %0, %c3", "(program_id(0)) % 4"),
        ("muli %0, %c3", "3·program_id(0)"),
        ("addi %0, %c3", "3 + program_id(0)"), ("subi %0, %c3", "-3 + program_id(0)"),
    ],
)  # fmt: skip
def test_an_operation_on_a_known_number_is_a_term(line, words):
    body = f"""
    %c3 = arith.constant 3 : i32
    %c0 = arith.constant 0 : i32
    %x = arith.{line} : i32
    %p = tt.addptr %arg0, %x : !tt.ptr<f32>, i32
    %v = tt.load %p : !tt.ptr<f32>
    """
    (offset,) = (one.offset for one in facts(body).accesses if not one.type.shape and one.kind == "load")
    assert offset.words == words


@pytest.mark.parametrize("bits", [62, 63, 64])
def test_a_shift_beyond_63_bits_is_no_power(bits):
    body = f"""
    %by = arith.constant {bits} : i64
    %a = arith.extsi %0 : i32 to i64
    %x = arith.shli %a, %by : i64
    %p = tt.addptr %arg0, %x : !tt.ptr<f32>, i64
    %v = tt.load %p : !tt.ptr<f32>
    """
    (offset,) = (one.offset for one in facts(body).accesses if not one.type.shape and one.kind == "load")
    assert (offset.words == f"{1 << bits}·program_id(0)") == (bits < 63)


def test_a_value_that_moves_evenly_is_known_after_its_loop():
    body = """
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %end = scf.for %i = %c0 to %0 step %c1 iter_args(%at = %c0) -> (i32)  : i32 {
      %next = arith.addi %at, %c128_i32 : i32
      scf.yield %next : i32
    }
    %p = tt.addptr %arg0, %end : !tt.ptr<f32>, i32
    %v = tt.load %p : !tt.ptr<f32>
    """
    (loaded,) = (one for one in work(body).accesses if one.kind == "load" and one.tile == 1)
    assert loaded.known
    assert loaded.shared[-1] == 8, "128 times its turns, which each of 8 programs has another number of"


def test_what_is_no_parameter_is_false_and_other_truths_may_be_either():
    text = """
module {
  tt.func public @k(%x: !tt.ptr<f32>, %even: i1, %odd: i1) {
    %v = tt.load %x, %even : !tt.ptr<f32>
    %w = tt.load %x, %odd : !tt.ptr<f32>
    tt.return
  }
}
"""
    known, other = KernelFacts.of(text, parameters=["x", "even"]).accesses
    assert known.mask.name == "compared"
    assert other.mask.words == "False"
    assert [one.mask.name for one in KernelFacts.of(text).accesses] == ["compared"] * 2
    assert [one.root.words for one in KernelFacts.of(text, parameters=["even"]).accesses] == ["x"] * 2


def test_a_kernel_of_as_many_parts_as_are_allowed_is_read_and_one_of_more_is_not(monkeypatch):
    count = facts().terms.count
    monkeypatch.setattr(term_walk, "_MOST_TERMS", count)
    assert facts().terms.count == count
    monkeypatch.setattr(term_walk, "_MOST_TERMS", count - 1)
    with pytest.raises(UntoldError, match=f"more than {count - 1} parts"):
        facts()


CARRIES = """
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %x = arith.constant 1.000000e+00 : f32
    %y = arith.constant 2.000000e+00 : f32
    %true = arith.constant true
    %false = arith.constant false
    %r:6 = scf.for %i = %c0 to %arg2 step %c1 iter_args(%same = %0, %even = %c0, %uneven = %c1, %real = %x, %truth = %true, %at = %arg0) -> (i32, i32, i32, f32, i1, !tt.ptr<f32>)  : i32 {
      %p = tt.addptr %arg0, %same : !tt.ptr<f32>, i32
      %v = tt.load %p : !tt.ptr<f32>
      %q = tt.addptr %at, %even : !tt.ptr<f32>, i32
      %w = tt.load %q : !tt.ptr<f32>
      %e = arith.addi %even, %0 : i32
      %u = arith.addi %uneven, %i : i32
      %t = tt.addptr %at, %c128_i32 : !tt.ptr<f32>, i32
      scf.yield %same, %e, %u, %y, %false, %t : i32, i32, i32, f32, i1, !tt.ptr<f32>
    }
    %z = tt.load %r#5 : !tt.ptr<f32>
"""  # noqa: E501 - a loop's head is one line


@pytest.mark.parametrize("data", [True, False])
def test_what_a_loop_carries_unmoved_or_evenly_is_said_by_the_number_of_the_turn_and_all_else_is_carried(data):
    kernel = KernelFacts.of(COPY.replace("BODY", CARRIES), data=data)
    (loop,) = kernel.loops
    assert [one.place[1] for one in loop.carried] == [2, 3, 4]
    words = [one.offset.words for one in kernel.accesses if not one.type.shape]
    assert words == [
        "program_id(0)", "program_id(0)·iteration + 128·iteration", f"128·turns({loop.number}, 0, arg2, 1)"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("jump", "reason"),
    [
        ("cf.switch %0 : i32, [default: ^bb1, 1: ^bb2]", "a block ends with cf.switch"),
        ("cf.cond_br %6, ^bb1", "a block ends with cf.cond_br"), ("cf.br ^bb1, ^bb2", "a block ends with cf.br"),
    ],
)  # fmt: skip
def test_a_jump_of_another_kind_is_told(jump, reason):
    with pytest.raises(UntoldError, match=reason):
        facts(f"    {jump}\n  ^bb1:\n    cf.br ^bb2\n  ^bb2:\n")


def test_a_pointer_that_a_loop_moves_to_another_tensor_does_not_move_evenly():
    body = """
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %r = scf.for %i = %c0 to %arg2 step %c1 iter_args(%at = %arg0) -> (!tt.ptr<f32>)  : i32 {
      %v = tt.load %at : !tt.ptr<f32>
      scf.yield %arg1 : !tt.ptr<f32>
    }
    """
    kernel = facts(body)
    (loop,) = kernel.loops
    assert [one.place[1] for one in loop.carried] == [0]
    loaded = next(one for one in kernel.accesses if not one.type.shape)
    assert (loaded.root.words, loaded.offset.words) == ("arg0", f"carried({loop.number}, 0)"), "as in its first turn"


@pytest.mark.parametrize(
    ("step", "reason"), [("%data", "depends on data"), ("%minus", "has no end"), ("%none", "has no end")]
)
def test_a_loop_whose_steps_lead_nowhere_is_told(step, reason):
    body = f"""
    %c0 = arith.constant 0 : i32
    %minus = arith.constant -1 : i32
    %none = arith.subi %0, %0 : i32
    %t = tt.bitcast %arg0 : !tt.ptr<f32> -> !tt.ptr<i32>
    %data = tt.load %t : !tt.ptr<i32>
    scf.for %i = %c0 to %arg2 step {step}  : i32 {{
    }}
    """
    with pytest.raises(UntoldError, match=reason):
        work(body)
