# SPDX-License-Identifier: GPL-2.0
# frozen_string_literal: true
#
# The runner of unittests.py for tests of Ruby's own source.
#
#     rubytest.rb FOLDER MODULE [TEST...]    MODULE is ruby.A.B for test/A/B.rb of the source in $SUITE
#
# It has its own loop, since that of the source tells nobody which test hangs.

# Seconds that a test may take.
LIMIT = 120

folder, test_module, *only = ARGV
source = ENV.fetch('SUITE')
ARGV.clear
$LOAD_PATH.unshift("#{source}/tool/lib", "#{source}/test", "#{source}/test/lib")
require 'test/unit'
require 'envutil'
require 'core_assertions'

# Where the tests give something a time, a kernel with sanitizers takes a multiple of it.
EnvUtil.timeout_scale = 5

# Takes what a test says of itself.
class Recorder < Test::Unit::Runner
  attr_accessor :outcome, :log

  def puke(suite, method, error)
    if error.is_a?(Test::Unit::PendedError)
      self.outcome = 'skipped' if outcome == 'ok'
    else
      log.puts("== #{suite}.#{method}\n#{error.full_message(highlight: false)}")
      self.outcome = 'fails'
    end
    ''
  end
end

outcomes = File.open("#{folder}/outcomes", 'a')
outcomes.sync = true
recorder = Recorder.new
recorder.log = File.open("#{folder}/log", 'a')
recorder.log.sync = true
done = File.readlines("#{folder}/outcomes").map { |line| line.split.first }

path = test_module.split('.').drop(1).join('/')
file = ["test/#{path}", "tool/test/#{path}"].map { |p| "#{source}/#{p}.rb" }.find { |p| File.exist?(p) }
Dir.chdir(source)
require file

deadline = nil
Thread.new do
  loop do
    sleep 1
    next unless deadline && Process.clock_gettime(Process::CLOCK_MONOTONIC) > deadline
    Thread.list.each { |thread| recorder.log.puts("== #{thread.inspect}", thread.backtrace) }
    exit!(1)
  end
end

Test::Unit::TestCase.test_suites.each do |suite|
  suite.test_methods.sort.each do |method|
    test = "#{test_module}.#{suite}.#{method}".tr(' ', '_')
    next if done.include?(test) || !(only.empty? || only.include?(test))
    outcomes.puts("#{test} begins")
    deadline = Process.clock_gettime(Process::CLOCK_MONOTONIC) + LIMIT
    recorder.outcome = 'ok'
    suite.new(method).run(recorder)
    outcomes.puts("#{test} #{recorder.outcome}")
  end
end
# What a test left behind does not keep the rest waiting.
exit!(0)
