"""What a job, an attempt, an agent and a policy are. Pure; standard library only."""
